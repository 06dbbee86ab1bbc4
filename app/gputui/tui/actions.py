"""ACTIONS: the one table of what a person can do. Keys, palette, help and the key line all come from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from gputui.inventory.light_dataclasses import dataclass
from gputui.vendors.registry import default_vendor

Group = Literal["Select", "Launch", "Look", "Box & people", "Program"]
"""What an action is about; help and palette are grouped by it, in this order."""

GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True, slots=True)
class Action:
    """Something a person can do on the main screen.

    group    what it is about
    id       names the handler in `screens/main.py`, and the action in a keymap
    keys     Textual's key names, separated by commas; the first is the one that is shown
    shown    how the key is written for people, where nobody has given it another
    hint     a word for the key line (`views/keys.py` says when it is there)
    title    for the palette and the help; `about` says more
    also     further words that people type to find it in the palette
    page     whether it opens a page that shows the same wherever it was opened: its key then works on every
             page where that has no other meaning
    """

    group: Group
    id: str
    keys: str
    shown: str
    hint: str
    title: str
    about: str
    also: str = ""
    page: bool = False


_VENDOR = default_vendor()
_FIRST, _SECOND = _VENDOR.device(0), _VENDOR.device(1)
_NONE = f"{_VENDOR.visibility.variable}={_VENDOR.visibility.none}"

ACTIONS: tuple[Action, ...] = (
    Action(
        "Select",
        "select",
        "space",
        "space/0-9",
        "select",
        "Select the device at the cursor",
        "or deselect it; a digit selects that GPU, 0 and then 1 MIG instance 0:1; a click does too",
    ),
    Action(
        "Launch",
        "launch",
        "enter",
        "⏎",
        "run",
        "Run the command",
        "checks the devices again, closes the screen and becomes the command",
    ),
    Action(
        "Launch",
        "copy",
        "y",
        "y",
        "copy",
        "Copy the launch line",
        "to the clipboard, also over SSH and in tmux",
    ),
    Action(
        "Launch",
        "export",
        "Y",
        "Y",
        "",
        "Export the launch",
        "for fish, PowerShell, .env, docker, sbatch, accelerate, VS Code, JSON: copy or save",
    ),
    Action(
        "Select",
        "best",
        "b",
        "b",
        "best",
        "Select the best devices",
        "one more each time, the best connected free ones, and why, as gputui pick -n does",
    ),
    Action("Select", "other", "B", "B", "", "Select the next best set", "of the same size, and why"),
    Action(
        "Select", "ask", "n", "n", "best N", "Select the best N devices", "for a job: 4, 8 tp=2 pp=2, or auto"
    ),
    Action(
        "Select",
        "order",
        "o",
        "o",
        "order",
        "Order the selected devices",
        "best for the links, by index, fastest first, emptiest first",
    ),
    Action(
        "Look",
        "topology",
        "t",
        "t",
        "topology",
        "Show the topology",
        "links between devices: a matrix and a tree, to select from",
        "nvlink numa pcie nic",
        page=True,
    ),
    Action("Launch", "edit", "e", "e", "edit", "Edit the command", "with quotes as in a shell"),
    Action(
        "Launch",
        "launcher",
        "l",
        "l",
        "launcher",
        "Change the launcher",
        "python, torchrun, accelerate, deepspeed, mpirun: how the command is started",
    ),
    Action(
        "Launch",
        "launch_page",
        "L",
        "L",
        "launch page",
        "Show the launch page",
        "launcher, processes, variables, directory, Python; recent and saved launches",
        page=True,
    ),
    Action(
        "Launch",
        "plan",
        "m",
        "m",
        "plan",
        "Plan: how many devices, and how",
        "does the model fit, with which parallelism; writes its files",
        "memory parallelism fsdp ddp zero deepspeed tensor pipeline batch lora model estimate",
        page=True,
    ),
    Action(
        "Launch",
        "return",
        "r",
        "r",
        "run & return",
        "Run the command and come back",
        "the screen returns when it ends; Ctrl-C stops the command only",
    ),
    Action(
        "Launch",
        "detach",
        "d",
        "d",
        "detach",
        "Run the command as a job",
        "it keeps running after the screen, terminal or connection is closed",
    ),
    Action(
        "Launch",
        "wait",
        "w",
        "w",
        "wait in line",
        "Wait in line for devices",
        "first come, first served; the command starts as a job when they are free",
    ),
    Action(
        "Box & people",
        "queue",
        "Q",
        "Q",
        "",
        "Show the queue",
        "who waits for devices, and why",
        "waiting line claims",
        page=True,
    ),
    Action(
        "Box & people",
        "jobs",
        "D",
        "D",
        "jobs",
        "Show the jobs",
        "their logs and exit status; stop, clone or rerun one",
        "log output kill background",
        page=True,
    ),
    Action(
        "Launch",
        "check",
        "v",
        "v",
        "verify",
        "Verify what the command will see",
        f"its own Python reports which GPU is {_FIRST}, {_SECOND}, …",
    ),
    Action(
        "Select",
        "later",
        "J,shift+down",
        "J",
        "reorder",
        "Move the selected device later",
        f"{_FIRST} becomes {_SECOND}",
    ),
    Action(
        "Select",
        "earlier",
        "K,shift+up",
        "K",
        "",
        "Move the selected device earlier",
        f"{_SECOND} becomes {_FIRST}",
    ),
    Action("Select", "down", "down,j", "↓ j", "", "Move the cursor down", ""),
    Action("Select", "up", "up,k", "↑ k", "", "Move the cursor up", ""),
    Action("Select", "first", "home,g", "g", "", "Move to the first device", ""),
    Action("Select", "last", "end,G", "G", "", "Move to the last device", ""),
    Action(
        "Look",
        "sort",
        "s",
        "s",
        "",
        "Sort the devices",
        "by index, utilization, memory, temperature, state or user",
    ),
    Action(
        "Look",
        "filter",
        "slash",
        "/",
        "",
        "Filter the devices",
        "free, busy, a user, part of a name",
        "search find",
    ),
    Action(
        "Look",
        "columns",
        "f",
        "f",
        "",
        "Change the columns",
        "show, hide and move columns of the device table",
        "watts power memory temperature clock fan pcie bus numa throttle",
        page=True,
    ),
    Action("Select", "clear", "x", "x", "clear", "Clear the selection", "deselect every device"),
    Action(
        "Select",
        "cpu",
        "c",
        "c",
        "CPU only",
        "Use the CPU only",
        f"run with {_NONE}; the command sees no GPU",
    ),
    Action(
        "Select",
        "command",
        "C",
        "C",
        "",
        "Select what the command asks for",
        "the devices that it names, or the best of that number",
    ),
    Action(
        "Launch",
        "ids",
        "u",
        "u",
        "",
        "Name devices by UUID",
        "or by index; UUIDs stay valid when the numbering changes",
    ),
    Action(
        "Look",
        "device",
        "right,i",
        "→ i",
        "details",
        "Show the device page",
        "load, power, temperature, clocks, links, errors, processes",
        "memory watts xid ecc",
    ),
    Action(
        "Look",
        "processes",
        "p",
        "p",
        "processes",
        "Show the processes",
        "who runs what, on which device",
        "kill pid memory",
        page=True,
    ),
    Action(
        "Look",
        "timelines",
        "h",
        "h",
        "",
        "Show the timelines",
        "utilization, memory and power over minutes or hours",
        "history charts graphs watts past",
        page=True,
    ),
    Action(
        "Box & people",
        "people",
        "P",
        "P",
        "people",
        "Show the people",
        "who uses which devices, for how long, and who is idle",
        page=True,
    ),
    Action(
        "Box & people",
        "boxes",
        "O",
        "O",
        "",
        "Show other boxes",
        "those of the settings, over ssh: what is free where",
        "hosts machines servers cluster remote",
    ),
    Action(
        "Box & people",
        "slurm",
        "S",
        "S",
        "",
        "Show the Slurm cluster",
        "its nodes and your jobs there; starts the command on one by srun or sbatch",
        "nodes partitions sbatch srun scheduler",
    ),
    Action(
        "Look",
        "messages",
        "M",
        "M",
        "messages",
        "Show recent messages",
        "with their times",
        "log notifications errors warnings",
        page=True,
    ),
    Action(
        "Look",
        "panels",
        "H",
        "H",
        "panels",
        "Hide and show panels",
        "processes, timelines, links, …; saved in the settings",
        page=True,
    ),
    Action(
        "Look",
        "theme",
        "T",
        "T",
        "",
        "Change the theme",
        "dark, light, ansi (your terminal's own colours)",
        "colors color dark light",
    ),
    Action(
        "Program",
        "help",
        "question_mark,f1",
        "?",
        "help",
        "Show all keys",
        "and what the symbols mean",
        "help shortcuts",
    ),
    Action("Program", "palette", "ctrl+p", "ctrl+p", "", "Search the actions", ""),
    Action("Program", "stop", "ctrl+z", "ctrl+z", "", "Back to the shell", "fg returns"),
    Action("Program", "quit", "q", "q", "quit", "Quit", "without starting anything", "exit close"),
)

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}

_SIGNS = {
    "enter": "⏎",
    "question_mark": "?",
    "slash": "/",
    "down": "↓",
    "up": "↑",
    "right": "→",
    "comma": ",",
    "plus": "+",
    "left": "←",
    "minus": "-",
    "equals_sign": "=",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
}


def written(key: str) -> str:
    """How a key of Textual's is written for people."""
    return _SIGNS.get(key, key)


def key_of(action_id: str, keymap: Mapping[str, str]) -> str:
    """The key of an action as it is written for people, with the user's own keymap."""
    own = keymap.get(action_id)
    return written(own.split(",")[0].strip()) if own else BY_ID[action_id].shown


def keys_of(action: Action, keymap: Mapping[str, str]) -> list[str]:
    """All keys of an action in Textual's names, with the user's own keymap."""
    return [key.strip() for key in keymap.get(action.id, action.keys).split(",")]


def in_palette(action: Action) -> str:
    """What the palette calls an action: below its group, whose name is not said twice."""
    return f"{action.group}: {action.title.removeprefix(f'{action.group} ')}"


def in_groups() -> tuple[tuple[Group, tuple[Action, ...]], ...]:
    """The actions by what they are about."""
    return tuple((group, tuple(a for a in ACTIONS if a.group == group)) for group in GROUPS)
