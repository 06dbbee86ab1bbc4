"""ACTIONS: the single table of user actions. Keys, palette, help and the key line all come from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Literal, get_args

from gputui.inventory.light_dataclasses import dataclass
from gputui.vendors.registry import default_vendor

Group = Literal["Select", "Launch", "Look", "Box & people", "Program"]
"""The subject of an action; help and palette are grouped by it, in this order."""

GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True, slots=True)
class Action:
    """An action that the user can perform on the main screen.

    group    the subject of the action
    id       the name of the handler in `screens/main.py`, and of the action in a keymap
    keys     Textual's key names, separated by commas
    title    the title in the palette and the help; `about` adds details
    hint     a word for the key line (`views/keys.py` decides when it is shown)
    shown    the keys as displayed unless the keymap gives others; "": the first key
    also     further search words for the palette
    page     whether the action opens a page that is the same from everywhere: its key then works on every
             page that gives the key no other meaning
    """

    group: Group
    id: str
    keys: str
    title: str
    about: str = ""
    hint: str = ""
    shown: str = ""
    also: str = ""
    page: bool = False


_select, _launch, _look, _box, _program = (partial(Action, group) for group in GROUPS)

_VENDOR = default_vendor()
_FIRST, _SECOND = _VENDOR.device(0), _VENDOR.device(1)
_NONE = f"{_VENDOR.visibility.variable}={_VENDOR.visibility.none}"

ACTIONS: tuple[Action, ...] = (
    _select(
        "select",
        "space",
        "Select the device at the cursor",
        "or deselect it; a digit selects that GPU, 0 and then 1 MIG instance 0:1; a click does too",
        hint="select",
        shown="space/0-9",
    ),
    _launch(
        "launch",
        "enter",
        "Run the command",
        "checks the devices again, closes the screen and becomes the command",
        hint="run",
    ),
    _launch("copy", "y", "Copy the launch line", "to the clipboard, also over SSH and in tmux", hint="copy"),
    _launch(
        "export",
        "Y",
        "Export the launch",
        "for fish, PowerShell, .env, docker, sbatch, accelerate, VS Code, JSON: copy or save",
    ),
    _select(
        "best",
        "b",
        "Select the best devices",
        "one more each time, the best connected free ones, and why, as gputui pick -n does",
        hint="best",
    ),
    _select("other", "B", "Select the next best set", "of the same size, and why"),
    _select("ask", "n", "Select the best N devices", "for a job: 4, 8 tp=2 pp=2, or auto", hint="best N"),
    _select(
        "order",
        "o",
        "Order the selected devices",
        "best for the links, by index, fastest first, emptiest first",
        hint="order",
    ),
    _look(
        "topology",
        "t",
        "Show the topology",
        "links between devices: a matrix and a tree, to select from",
        hint="topology",
        also="nvlink numa pcie nic",
        page=True,
    ),
    _launch("edit", "e", "Edit the command", "with quotes as in a shell", hint="edit"),
    _launch(
        "launcher",
        "l",
        "Change the launcher",
        "python, torchrun, accelerate, deepspeed, mpirun: how the command is started",
        hint="launcher",
    ),
    _launch(
        "launch_page",
        "L",
        "Show the launch page",
        "launcher, processes, variables, directory, Python; recent and saved launches",
        hint="launch page",
        page=True,
    ),
    _launch(
        "plan",
        "m",
        "Plan: how many devices, and how",
        "does the model fit, with which parallelism; writes its files",
        hint="plan",
        also="memory parallelism fsdp ddp zero deepspeed tensor pipeline batch lora model estimate",
        page=True,
    ),
    _launch(
        "return",
        "r",
        "Run the command and come back",
        "the screen returns when it ends; Ctrl-C stops the command only",
        hint="run & return",
    ),
    _launch(
        "detach",
        "d",
        "Run the command as a job",
        "it keeps running after the screen, terminal or connection is closed",
        hint="detach",
    ),
    _launch(
        "wait",
        "w",
        "Wait in line for devices",
        "first come, first served; when they are free, the command runs in the background",
        hint="wait in line",
    ),
    _box(
        "queue",
        "Q",
        "Show the queue",
        "who waits for devices, and why",
        also="waiting line claims",
        page=True,
    ),
    _box(
        "jobs",
        "D",
        "Show the jobs",
        "their logs and exit status; stop, clone or rerun one",
        hint="jobs",
        also="log output kill background",
        page=True,
    ),
    _launch(
        "check",
        "v",
        "Verify what the command will see",
        f"its own Python reports which GPU is {_FIRST}, {_SECOND}, …",
        hint="verify",
    ),
    _select(
        "later",
        "J,shift+down",
        "Move the selected device later",
        f"{_FIRST} becomes {_SECOND}",
        hint="reorder",
    ),
    _select("earlier", "K,shift+up", "Move the selected device earlier", f"{_SECOND} becomes {_FIRST}"),
    _select("down", "down,j", "Move the cursor down", shown="↓ j"),
    _select("up", "up,k", "Move the cursor up", shown="↑ k"),
    _select("first", "home,g", "Move to the first device", shown="g"),
    _select("last", "end,G", "Move to the last device", shown="G"),
    _look("sort", "s", "Sort the devices", "by index, utilization, memory, temperature, state or user"),
    _look("filter", "slash", "Filter the devices", "free, busy, a user, part of a name", also="search find"),
    _look(
        "columns",
        "f",
        "Change the columns",
        "show, hide and move columns of the device table",
        also="watts power memory temperature clock fan pcie bus numa throttle",
        page=True,
    ),
    _select("clear", "x", "Clear the selection", "deselect every device", hint="clear"),
    _select("cpu", "c", "Use the CPU only", f"run with {_NONE}; the command sees no GPU", hint="CPU only"),
    _select(
        "command",
        "C",
        "Select what the command asks for",
        "the devices that it names, or the best of that number",
    ),
    _launch("ids", "u", "Name devices by UUID", "or by index; UUIDs stay valid when the numbering changes"),
    _look(
        "device",
        "right,i",
        "Show the device page",
        "load, power, temperature, clocks, links, errors, processes",
        hint="details",
        shown="→ i",
        also="memory watts xid ecc",
    ),
    _look(
        "processes",
        "p",
        "Show the processes",
        "who runs what, on which device",
        hint="processes",
        also="kill pid memory",
        page=True,
    ),
    _look(
        "timelines",
        "h",
        "Show the timelines",
        "utilization, memory and power over minutes or hours",
        also="history charts graphs watts past",
        page=True,
    ),
    _box(
        "people",
        "P",
        "Show the people",
        "who uses which devices, for how long, and who is idle",
        hint="people",
        page=True,
    ),
    _box(
        "nodes",
        "O",
        "Show other nodes",
        "boxes over ssh and the nodes of Slurm: what is free there; starts the command on one",
        hint="nodes",
        also="hosts boxes machines servers cluster remote slurm partitions sbatch srun scheduler",
    ),
    _look(
        "messages",
        "M",
        "Show recent messages",
        "with their times",
        hint="messages",
        also="log notifications errors warnings",
        page=True,
    ),
    _look(
        "panels",
        "H",
        "Hide and show panels",
        "processes, timelines, links, …; saved in the settings",
        hint="panels",
        page=True,
    ),
    _look(
        "theme",
        "T",
        "Change the theme",
        "dark, light, ansi (your terminal's own colours)",
        also="colors color dark light",
    ),
    _program(
        "help",
        "question_mark,f1",
        "Show all keys",
        "and what the symbols mean",
        hint="help",
        also="help shortcuts",
    ),
    _program("palette", "ctrl+p", "Search the actions"),
    _program("stop", "ctrl+z", "Back to the shell", "fg returns"),
    _program("quit", "q", "Quit", "without starting anything", hint="quit", also="exit close"),
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
    """The displayed form of a Textual key name."""
    return _SIGNS.get(key, key)


def key_of(action_id: str, keymap: Mapping[str, str]) -> str:
    """The key of an action as it is displayed, with the user's own keymap."""
    own = keymap.get(action_id)
    action = BY_ID[action_id]
    return (not own and action.shown) or written((own or action.keys).split(",")[0].strip())


def keys_of(action: Action, keymap: Mapping[str, str]) -> list[str]:
    """All keys of an action in Textual's names, with the user's own keymap."""
    return [key.strip() for key in keymap.get(action.id, action.keys).split(",")]


def in_palette(action: Action) -> str:
    """The palette's name for an action: the group and the title, without repeating the group's name."""
    return f"{action.group}: {action.title.removeprefix(f'{action.group} ')}"


def in_groups(without: Collection[str] = ()) -> tuple[tuple[Group, tuple[Action, ...]], ...]:
    """The actions by group, without those of these ids."""
    kept = [action for action in ACTIONS if action.id not in without]
    return tuple((group, tuple(a for a in kept if a.group == group)) for group in GROUPS)
