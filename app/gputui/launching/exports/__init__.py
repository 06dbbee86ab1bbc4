"""Exports: the launch in the form of a shell, a scheduler, a container engine, an editor or a program."""

from __future__ import annotations

from gputui.launching.exports.accelerate import accelerate_notes, to_accelerate
from gputui.launching.exports.compose_file import to_compose
from gputui.launching.exports.docker import docker_notes, to_docker
from gputui.launching.exports.dotenv import to_dotenv
from gputui.launching.exports.form import DEFAULT, ExportError, ExportOptions, Form
from gputui.launching.exports.json_document import to_json
from gputui.launching.exports.kubernetes import kubernetes_notes, to_kubernetes
from gputui.launching.exports.ray import ray_notes, to_ray
from gputui.launching.exports.sbatch import sbatch_notes, to_sbatch
from gputui.launching.exports.shell_lines import to_fish, to_powershell, to_sh
from gputui.launching.exports.vscode import to_vscode

__all__ = ["ALIASES", "DEFAULT", "FORMS", "ExportError", "ExportOptions", "Form", "to_json", "to_sh"]

FORMS: dict[str, Form] = {
    "sh": Form("a line for any POSIX shell", lambda launch, options: to_sh(launch)),
    "fish": Form("a line for fish", lambda launch, options: to_fish(launch)),
    "powershell": Form("statements for PowerShell", lambda launch, options: to_powershell(launch), utf8=True),
    "dotenv": Form("the variables as a .env file", lambda launch, options: to_dotenv(launch), utf8=True),
    "docker": Form(
        "docker run with the devices in their order", to_docker, docker_notes, frozenset(("image", "name"))
    ),
    "compose": Form(
        "a compose.yaml with the devices in their order",
        to_compose,
        docker_notes,
        frozenset(("image", "name")),
        utf8=True,
    ),
    "sbatch": Form(
        "a script for Slurm, which selects the devices",
        to_sbatch,
        lambda launch, options: sbatch_notes(launch),
        frozenset(("name",)),
    ),
    "ray": Form(
        "ray job submit; Ray selects the devices",
        to_ray,
        lambda launch, options: ray_notes(launch),
    ),
    "kubernetes": Form(
        "a job for kubectl create; Kubernetes selects the devices",
        to_kubernetes,
        kubernetes_notes,
        frozenset(("image", "name")),
        utf8=True,
    ),
    "accelerate": Form(
        "for accelerate launch --config_file",
        to_accelerate,
        lambda launch, options: accelerate_notes(launch),
        utf8=True,
    ),
    "vscode": Form("a launch.json for VS Code", to_vscode, takes=frozenset(("name",)), utf8=True),
    "json": Form("argv, environment, directory, devices", lambda launch, options: to_json(launch)),
}
"""What `--as` takes, by name."""

ALIASES = {"slurm": "sbatch", "k8s": "kubernetes"}
"""Other words for some of these names."""
