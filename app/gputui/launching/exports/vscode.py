"""A launch.json for VS Code's Python Debugger (debugpy).

Attributes: "Debugging configurations" of VS Code's documentation; null unsets a variable (debugpy #93).
"""

from __future__ import annotations

from gputui.launching.argument_vector import program_name
from gputui.launching.exports.form import (
    DEFAULT,
    ExportError,
    ExportOptions,
    final_changes,
    need_command,
    need_text,
)
from gputui.launching.launch import Launch
from gputui.launching.launchers import recognised
from gputui.launching.python_command import is_python, particular_interpreter, read_python
from gputui.launching.wrappers import unwrap


def to_vscode(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """Return the whole file, with one configuration. Child processes are debugged, too.

    Raises ExportError for a command that is not Python's, and for words that VS Code would replace.
    """
    import json

    need_command(launch, "a debugger")
    need_text(launch, "launch.json")
    before, command = unwrap(launch.argv)
    if before:
        raise ExportError(f"VS Code starts Python itself: leave out {' '.join(before)!r}")
    environment = final_changes(launch)
    for word in (*command, launch.directory or "", *filter(None, environment.values())):
        if "${" in word:
            raise ExportError(f"VS Code replaces ${{…}}, which cannot be escaped: {word!r}")
    configuration: dict[str, object] = {
        "name": options.name or f"gputui: {_what(launch)}",
        "type": "debugpy",
        "request": "launch",
        **_target(command),
        "env": environment,
        "cwd": launch.directory or "${workspaceFolder}",
        "console": "integratedTerminal",
        "justMyCode": False,
        "subProcess": True,
    }
    document = {"version": "0.2.0", "configurations": [configuration]}
    return json.dumps(document, indent=4, ensure_ascii=False)


def _what(launch: Launch) -> str:
    """Return the script and the devices, as the name in the list of configurations."""
    devices = ",".join(str(device.index) for device in launch.devices)
    return f"{launch.script} on {f'GPU {devices}' if devices else 'the CPU'}"


def _target(command: tuple[str, ...]) -> dict[str, object]:
    """Return "program" or "module" with "args", and the interpreter where the command names one."""
    named = particular_interpreter(command[0]) if is_python(command) else _beside(command[0])
    # An interpreter can start every launcher as a module.
    started = recognised(command).with_python(command, named or "python")
    python = read_python(started)
    if python is None:
        raise ExportError(
            f"VS Code's Python debugger cannot start {program_name(started)!r}, which is not Python"
        )
    interpreter: dict[str, object] = {} if named is None else {"python": named}
    if python.options:
        interpreter["pythonArgs"] = list(python.options)
    if python.module is not None:
        return {"module": python.module, "args": list(python.arguments), **interpreter}
    if python.script in (None, "-"):
        raise ExportError("VS Code starts a file or a module: `python train.py`, `python -m package`")
    return {"program": python.script, "args": list(python.arguments), **interpreter}


def _beside(word: str) -> str | None:
    """Return the interpreter of an environment whose `bin/torchrun` is named by its path."""
    folder, slash, name = word.rpartition("/")
    return f"{folder}/python" if slash and not name.endswith(".py") else None
