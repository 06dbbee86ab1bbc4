"""SUBCOMMANDS: the table of subcommands, for dispatch, help, completion and corrections."""

from __future__ import annotations

SUBCOMMANDS: dict[str, str] = {
    "ls": "list the devices and their state, as a table or JSON",
    "topo": "show the links between devices, as `nvidia-smi topo -m` does",
    "people": "list users: who uses which devices, and for how long",
    "usage": "list who held and used the devices over the last days",
    "pick": "print the best free devices, in order",
    "plan": "show how a model fits on GPUs, and write the files for it",
    "run": "start a command on the best free devices",
    "export": "write the launch for a shell, docker, Slurm, VS Code, …",
    "check": "verify which devices the command's Python will see",
    "compare": "run a command in variants, and compare them",
    "each": "run many tasks, each on devices of its own",
    "jobs": "background jobs: list, log, wait, stop, rerun",
    "claims": "list who holds which devices through gputui",
    "queue": "list who waits for devices, and why",
    "launches": "saved and recent launches: list, name, forget",
    "metrics": "print OpenMetrics text, or serve it, for Prometheus",
    "record": "write a snapshot to a file, for a bug report or for --from",
    "doctor": "find what is wrong here, and how to fix it",
    "config": "show the settings and where they come from, or write a file",
    "mcp": "serve agents: the Model Context Protocol",
    "agent-skill": "print a skill file that tells an agent how to share GPUs",
    "docs": "list or read the pages of documentation",
    "completion": "print a completion script for bash, zsh, fish or tcsh",
}
"""Every subcommand, with its line in `gputui --help`; each is in the module of `module_of`."""

STARTING = {"run", "export", "check", "compare", "each", "plan"}
"""The subcommands that take a command."""


def module_of(name: str) -> str:
    """The module of a subcommand; "" is the call without one."""
    return f"gputui.cli.{name.replace('-', '_') or 'screen'}"
