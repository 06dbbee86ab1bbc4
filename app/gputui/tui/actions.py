"""ACTIONS: the one table of what a person can do. Keys, palette, help and the key line all come from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

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
    """

    group: Group
    id: str
    keys: str
    shown: str
    hint: str
    title: str
    about: str


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
        "or deselect it; a digit selects the GPU of that number; a click does, too",
    ),
    Action(
        "Launch",
        "launch",
        "enter",
        "⏎",
        "run",
        "Run the command",
        "reads the selected devices again, leaves the screen and becomes the command",
    ),
    Action(
        "Launch",
        "copy",
        "y",
        "y",
        "copy",
        "Copy the launch line",
        "to the clipboard, also through SSH and tmux",
    ),
    Action(
        "Launch",
        "export",
        "Y",
        "Y",
        "",
        "The launch in another form",
        "fish, PowerShell, .env, docker, sbatch, accelerate, VS Code, JSON: copied, or in a file",
    ),
    Action(
        "Select",
        "best",
        "b",
        "b",
        "best",
        "One more of the best devices",
        "one, two, … of the best connected free ones, as `gputui pick -n` takes them, and why these",
    ),
    Action("Select", "other", "B", "B", "", "The next best set", "of as many devices, with its reason"),
    Action(
        "Select", "ask", "n", "n", "best N", "The best N devices", "how many, and for what: 4, or 8 tp=2 pp=2"
    ),
    Action(
        "Select",
        "order",
        "o",
        "o",
        "order",
        "Order the selected devices",
        "best for their links, as in the box, fastest first, emptiest first",
    ),
    Action(
        "Look",
        "topology",
        "t",
        "t",
        "topology",
        "Show the topology",
        "what joins the devices: a matrix and a tree, to select from",
    ),
    Action("Launch", "edit", "e", "e", "edit", "Edit the command", "in place, with a shell's quotes"),
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
        "Everything about the launch",
        "launcher, processes, variables, directory, Python; the last launches and their names",
    ),
    Action(
        "Launch",
        "return",
        "r",
        "r",
        "run & return",
        "Run the command and come back",
        "the screen waits for it and says how it ended; Ctrl-C ends the command only",
    ),
    Action(
        "Launch",
        "detach",
        "d",
        "d",
        "detach",
        "Run the command as a job",
        "it goes on by itself when the screen, the terminal or the connection is gone",
    ),
    Action(
        "Launch",
        "wait",
        "w",
        "w",
        "wait in line",
        "Wait in line for devices",
        "first come first served; the command starts as a job as soon as they are free",
    ),
    Action(
        "Box & people",
        "queue",
        "Q",
        "Q",
        "",
        "Show the queue",
        "who waits for devices, and what is in the way",
    ),
    Action(
        "Box & people",
        "jobs",
        "D",
        "D",
        "jobs",
        "Show the jobs",
        "what runs by itself: its log, how it ended; stop it",
    ),
    Action(
        "Launch",
        "check",
        "v",
        "v",
        "verify",
        "Verify what the command will see",
        f"its own Python is asked which GPU is {_FIRST}, {_SECOND}, …",
    ),
    Action(
        "Select",
        "later",
        "J,shift+down",
        "J",
        "reorder",
        "Move the selected device later",
        f"{_FIRST} becomes {_SECOND}; shift+down does the same",
    ),
    Action(
        "Select",
        "earlier",
        "K,shift+up",
        "K",
        "",
        "Move the selected device earlier",
        f"{_SECOND} becomes {_FIRST}; shift+up does the same",
    ),
    Action("Select", "down", "down,j", "↓ j", "", "Cursor down", ""),
    Action("Select", "up", "up,k", "↑ k", "", "Cursor up", ""),
    Action("Select", "first", "home,g", "g", "", "Cursor to the first device", ""),
    Action("Select", "last", "end,G", "G", "", "Cursor to the last device", ""),
    Action(
        "Look",
        "sort",
        "s",
        "s",
        "",
        "Sort the devices",
        "the box's order, utilization, memory, temperature, state, user",
    ),
    Action(
        "Look", "filter", "slash", "/", "", "Show some devices only", "free ones, those of a user, of a name"
    ),
    Action(
        "Look", "columns", "f", "f", "", "Columns of the device table", "which are shown, and in which order"
    ),
    Action("Select", "clear", "x", "x", "clear", "Clear the selection", "deselect every device"),
    Action(
        "Select", "cpu", "c", "c", "CPU only", "CPU only", f"run with {_NONE} so that the command sees no GPU"
    ),
    Action(
        "Select",
        "command",
        "C",
        "C",
        "",
        "Select what the command says",
        "the devices that it names, or the best of as many as it asks for",
    ),
    Action(
        "Launch",
        "ids",
        "u",
        "u",
        "",
        "Name devices by UUID",
        "or by index again; UUIDs stay true when the numbering changes",
    ),
    Action(
        "Look",
        "device",
        "right,i",
        "→ i",
        "details",
        "Everything about the device",
        "at the cursor: load, power, temperature, clocks, links, errors, and its processes",
    ),
    Action("Look", "processes", "p", "p", "processes", "Show the processes", "who runs what on which device"),
    Action(
        "Look",
        "timelines",
        "h",
        "h",
        "",
        "Show the timelines",
        "utilization, memory and power of the last minutes or hours",
    ),
    Action(
        "Box & people",
        "people",
        "P",
        "P",
        "people",
        "Show the people",
        "who has what, for how long, and does nothing with it",
    ),
    Action(
        "Look",
        "messages",
        "M",
        "M",
        "messages",
        "Show the last messages",
        "with their times; a message goes with the next key",
    ),
    Action(
        "Look",
        "panels",
        "H",
        "H",
        "panels",
        "Hide and show panels",
        "processes, timelines, links, …; kept in the settings",
    ),
    Action(
        "Look", "theme", "T", "T", "", "Change the theme", "dark, light, ansi (your terminal's own colours)"
    ),
    Action("Program", "help", "question_mark,f1", "?", "help", "Show all keys", "and what the signs mean"),
    Action("Program", "palette", "ctrl+p", "ctrl+p", "", "Search the actions", ""),
    Action("Program", "stop", "ctrl+z", "ctrl+z", "", "Back to the shell", "`fg` comes back"),
    Action("Program", "quit", "q", "q", "quit", "Quit", "nothing is started"),
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


def in_groups() -> tuple[tuple[Group, tuple[Action, ...]], ...]:
    """The actions by what they are about."""
    return tuple((group, tuple(a for a in ACTIONS if a.group == group)) for group in GROUPS)
