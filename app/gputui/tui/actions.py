"""ACTIONS: the one table of what a person can do. Keys, palette, help and the key line all come from it."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.vendors.registry import default_vendor


@dataclass(frozen=True, slots=True)
class Action:
    """Something a person can do on the main screen.

    id       names the handler in `screens/main.py`
    keys     Textual's key names, separated by commas; the first is the one that is shown
    shown    how the key is written for people
    hint     a word for the key line, which shows the actions of KEY_LINE
    title    for the palette and the help; `about` says more
    """

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
        "select",
        "space",
        "space/0-9",
        "select",
        "Select the device at the cursor",
        "or deselect it; a digit selects the GPU of that number; a click does, too",
    ),
    Action(
        "launch",
        "enter",
        "⏎",
        "run",
        "Run the command",
        "reads the selected devices again, leaves the screen and becomes the command",
    ),
    Action("copy", "y", "y", "copy", "Copy the launch line", "to the clipboard, also through SSH and tmux"),
    Action(
        "export",
        "Y",
        "Y",
        "",
        "The launch in another form",
        "fish, PowerShell, .env, docker, sbatch, accelerate, VS Code, JSON: copied, or in a file",
    ),
    Action(
        "best",
        "b",
        "b",
        "best",
        "One more of the best devices",
        "one, two, … of the best connected free ones, as `gputui pick -n` takes them, and why these",
    ),
    Action("other", "B", "B", "", "The next best set", "of as many devices, with its reason"),
    Action("ask", "n", "n", "", "The best N devices", "how many, and for what: 4, or 8 tp=2 pp=2"),
    Action(
        "order",
        "o",
        "o",
        "",
        "Order the selected devices",
        "best for their links, as in the box, fastest first, emptiest first",
    ),
    Action(
        "topology",
        "t",
        "t",
        "topology",
        "Show the topology",
        "what joins the devices: a matrix and a tree, to select from",
    ),
    Action("edit", "e", "e", "edit", "Edit the command", "in place, with a shell's quotes"),
    Action(
        "launcher",
        "l",
        "l",
        "launcher",
        "Change the launcher",
        "python, torchrun, accelerate, deepspeed, mpirun: how the command is started",
    ),
    Action(
        "launch_page",
        "L",
        "L",
        "",
        "Everything about the launch",
        "launcher, processes, variables, directory, Python; the last launches and their names",
    ),
    Action(
        "return",
        "r",
        "r",
        "",
        "Run the command and come back",
        "the screen waits for it and says how it ended; Ctrl-C ends the command only",
    ),
    Action(
        "detach",
        "d",
        "d",
        "",
        "Run the command as a job",
        "it goes on by itself when the screen, the terminal or the connection is gone",
    ),
    Action(
        "wait",
        "w",
        "w",
        "",
        "Wait in line for devices",
        "first come first served; the command starts as a job as soon as they are free",
    ),
    Action("jobs", "D", "D", "", "Show the jobs", "what runs by itself: its log, how it ended; stop it"),
    Action(
        "check",
        "v",
        "v",
        "",
        "Verify what the command will see",
        f"its own Python is asked which GPU is {_FIRST}, {_SECOND}, …",
    ),
    Action(
        "later",
        "J,shift+down",
        "J",
        "reorder",
        "Move the selected device later",
        f"{_FIRST} becomes {_SECOND}; shift+down does the same",
    ),
    Action(
        "earlier",
        "K,shift+up",
        "K",
        "",
        "Move the selected device earlier",
        f"{_SECOND} becomes {_FIRST}; shift+up does the same",
    ),
    Action("down", "down,j", "↓ j", "", "Cursor down", ""),
    Action("up", "up,k", "↑ k", "", "Cursor up", ""),
    Action("first", "home,g", "g", "", "Cursor to the first device", ""),
    Action("last", "end,G", "G", "", "Cursor to the last device", ""),
    Action("clear", "x", "x", "", "Clear the selection", "deselect every device"),
    Action("cpu", "c", "c", "", "CPU only", f"run with {_NONE} so that the command sees no GPU"),
    Action(
        "command",
        "C",
        "C",
        "",
        "Select what the command says",
        "the devices that it names, or the best of as many as it asks for",
    ),
    Action(
        "ids",
        "u",
        "u",
        "",
        "Name devices by UUID",
        "or by index again; UUIDs stay true when the numbering changes",
    ),
    Action("processes", "p", "p", "processes", "Show the processes", "who runs what on which device"),
    Action("people", "P", "P", "", "Show the people", "who has what, for how long, and does nothing with it"),
    Action(
        "timelines",
        "h",
        "h",
        "",
        "Show the timelines",
        "utilization, memory and power of the last minutes or hours",
    ),
    Action("theme", "T", "T", "", "Change the theme", "dark, light, ansi (your terminal's own colours)"),
    Action("help", "question_mark,f1", "?", "help", "Show all keys", "and what the signs mean"),
    Action("palette", "ctrl+p", "ctrl+p", "", "Search the actions", ""),
    Action("stop", "ctrl+z", "ctrl+z", "", "Back to the shell", "`fg` comes back"),
    Action("quit", "q", "q", "", "Leave", "nothing is started"),
)

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
KEY_LINE: tuple[tuple[str, str], ...] = tuple(
    (name, "J/K" if name == "later" else BY_ID[name].shown)
    for name in (
        "select",
        "later",
        "best",
        "topology",
        "launcher",
        "launch",
        "copy",
        "edit",
        "processes",
        "help",
    )
)
"""The actions of the key line, in its order, and the keys as they are written there."""
