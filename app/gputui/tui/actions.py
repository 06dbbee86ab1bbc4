"""ACTIONS: the single table of user actions. Keys, palette, help and the key line all come from it."""

from __future__ import annotations

from gputui.allocating.settings import Keymap
from gputui.inventory.light_dataclasses import frozen
from gputui.vendors.registry import default_vendor


@frozen
class Action:
    """An action that the user can perform on the main screen.

    id       the name of the handler in `screens/main.py`, and of the action in a keymap
    keys     Textual's key names, separated by commas; "": the palette only, unless the user gives it a key
    title    the title in the palette and the help; `about` adds details
    hint     a word for the line of keys
    shown    the keys as displayed unless the keymap gives others; "": the first key
    also     further search words for the palette
    word     what the screen and the documentation name to type for it in the palette; "": the id
    page     whether the action opens a page that is the same from everywhere: its key then works on every
             page that gives the key no other meaning
    """

    id: str
    keys: str
    title: str
    about: str = ""
    hint: str = ""
    shown: str = ""
    also: str = ""
    word: str = ""
    page: bool = False

    @property
    def query(self) -> str:
        """What to type for it in the palette."""
        return self.word or self.id.replace("_", " ")


_VENDOR = default_vendor()
_FIRST, _SECOND = _VENDOR.device(0), _VENDOR.device(1)
_NONE = f"{_VENDOR.visibility.variable}={_VENDOR.visibility.none}"

ACTIONS: tuple[Action, ...] = (
    # Select
    Action(
        "select",
        "space",
        "Select a GPU",
        "or deselect it; a digit means that GPU",
        hint="select",
        shown="space/0-9",
    ),
    Action(
        "best",
        "b",
        "Select the best GPUs",
        "pressed again, the best two, and so on",
        hint="best",
    ),
    Action(
        "later",
        "J,shift+down",
        "Move the selected GPU later",
        f"{_FIRST} becomes {_SECOND}",
        hint="reorder",
        also="reorder",
    ),
    Action(
        "earlier",
        "K,shift+up",
        "Move the selected GPU earlier",
        f"{_SECOND} becomes {_FIRST}",
        also="reorder",
    ),
    Action("clear", "", "Clear the selection", "deselect every GPU", hint="clear", shown="esc", also="none"),
    Action(
        "restore",
        "",
        "Restore what was before",
        "the cleared GPUs, or the command that a plan has replaced",
        also="undo bring back selection",
    ),
    Action(
        "other",
        "",
        "Select another set of that size",
        "the next best one, and why",
        hint="next set",
        also="alternative",
        word="next set",
    ),
    Action(
        "ask",
        "",
        "Type how many GPUs",
        "selects the best: 4, 8 tp=2 pp=2, auto",
        hint="best N",
        also="number count pick best select",
        word="number",
    ),
    Action(
        "order",
        "",
        "Order the selected GPUs",
        "best for the links, by index, fastest first, emptiest first",
        hint="order",
        also="sort rank",
    ),
    Action("cpu", "", "Use the CPU only", f"with {_NONE}, it sees no GPU"),
    Action(
        "command",
        "",
        "Select what the command asks for",
        "the GPUs that it names, or the best of that number",
        also="read intent",
        word="asked",
    ),
    Action("down", "down,j", "Move the cursor down"),
    Action("up", "up,k", "Move the cursor up"),
    Action("first", "home,g", "Move to the first GPU"),
    Action("last", "end,G", "Move to the last GPU"),
    Action("page_down", "pagedown", "Move a page down"),
    Action("page_up", "pageup", "Move a page up"),
    # Launch
    Action(
        "launch",
        "enter",
        "Run the command here",
        "checks again, closes the screen, then becomes it",
        hint="run",
        also="start",
        word="run",
    ),
    Action("edit", "e", "Edit the command", "with quotes as in a shell", hint="edit", also="type script"),
    Action("copy", "y", "Copy the launch line", "to the clipboard, also over SSH, in tmux", hint="copy"),
    Action(
        "detach",
        "d",
        "Run the command as a job",
        "in the background, also after logout",
        hint="job",
        also="background nohup start",
    ),
    Action(
        "return",
        "r",
        "Run the command and come back",
        "the screen returns when it ends",
        word="come back",
        also="start",
    ),
    Action(
        "launcher",
        "",
        "Change the launcher",
        "python, torchrun, accelerate, deepspeed, mpirun: how the command is started",
    ),
    Action(
        "launch_page",
        "",
        "Show all options of the launch",
        "launcher, variables, directory",
        also="launch page environment nodes recent saved processes directory python",
        page=True,
    ),
    Action(
        "launches",
        "",
        "Show the recent launches",
        "commands, counts, names: load one",
        also="saved",
        page=True,
    ),
    Action(
        "export",
        "",
        "Export the launch",
        "docker, Slurm, .env, fish, …: copy or save",
        also="sbatch ray accelerate json powershell compose kubernetes vs code dotenv",
    ),
    Action(
        "check",
        "",
        "Check what the command will see",
        f"which GPU is {_FIRST}, {_SECOND}",
        also="verify bandwidth measure prove",
    ),
    Action(
        "plan",
        "",
        "Plan the training of a model",
        "how many GPUs, parallelism",
        also="memory time files fsdp ddp zero deepspeed tensor pipeline batch lora model estimate",
        page=True,
    ),
    Action(
        "ids",
        "",
        "Name GPUs by UUID",
        "or by index; UUIDs stay valid when the numbering changes",
        word="uuid",
    ),
    # Wait
    Action(
        "wait",
        "w",
        "Wait in line for GPUs",
        "the command then starts as a job",
        hint="wait",
        also="queue background",
    ),
    Action(
        "queue",
        "",
        "Show the queue",
        "who waits for GPUs, and why",
        also="waiting line claims",
        page=True,
    ),
    # Jobs
    Action(
        "jobs",
        "D",
        "Show the jobs",
        "logs and exit status; stop, rerun or edit one",
        hint="jobs",
        also="log output kill background",
        page=True,
    ),
    Action(
        "experiments",
        "",
        "Show the experiments",
        "comparisons and tasks, among the jobs",
        also="compare comparisons sweeps each vary results tables",
        page=True,
    ),
    # Look
    Action(
        "topology",
        "t",
        "Show the topology",
        "links between GPUs, to select from",
        hint="topology",
        also="nvlink numa pcie nic matrix tree",
        page=True,
    ),
    Action(
        "processes",
        "p",
        "Show the processes and people",
        "who is idle; X ends one of yours",
        hint="processes",
        also="kill pid memory users",
        page=True,
    ),
    Action(
        "people",
        "",
        "Show the processes by person",
        "who uses which GPUs, how long, who is idle",
        page=True,
    ),
    Action(
        "usage",
        "",
        "Show the usage",
        "GPU time and energy by person, GPU or day",
        also="hours energy accounting",
        page=True,
    ),
    Action(
        "device",
        "right",
        "Show the device page",
        "load, power, clocks, links, errors",
        hint="details",
        also="memory watts temperature processes xid ecc details",
    ),
    Action(
        "timelines",
        "",
        "Show the timelines",
        "utilization, memory, power over hours",
        also="history charts graphs past",
        page=True,
    ),
    Action(
        "filter",
        "slash",
        "Filter the GPUs",
        "free, busy, a user, part of a name",
        hint="filter",
        also="search find",
    ),
    Action(
        "messages",
        "",
        "Show recent messages",
        "with their times",
        also="log notifications errors warnings",
        page=True,
    ),
    # Other nodes
    Action(
        "nodes",
        "",
        "Show other nodes",
        "boxes over ssh, nodes of Slurm: what is free",
        also="hosts boxes machines servers cluster remote slurm partitions sbatch srun scheduler starts",
    ),
    # Settings
    Action(
        "settings",
        "",
        "Change the settings",
        "when a GPU is free, columns, theme",
        also="options preferences configure rules interval confine idle",
        page=True,
    ),
    Action("sort", "s", "Sort the GPUs", "by utilization, memory, state, user", hint="sort"),
    Action(
        "columns",
        "",
        "Change the columns",
        "show, hide and move columns of the device table",
        also="watts power memory temperature clock fan pcie bus numa throttle",
        page=True,
    ),
    Action(
        "panels",
        "",
        "Hide and show panels",
        "processes, timelines, links, …; saved in the settings",
        page=True,
    ),
    Action(
        "theme",
        "",
        "Change the theme",
        "dark, light, ansi (your terminal's own colours)",
        also="colors color colours colour",
    ),
    Action(
        "help",
        "question_mark,f1",
        "Show all keys",
        "and what the symbols mean",
        hint="help",
        also="help shortcuts",
    ),
    Action(
        "palette",
        "colon,ctrl+p",
        "Do anything else, by name",
        "a word: sort, theme, docker, queue",
        hint="more",
        also="search actions commands",
    ),
    Action("stop", "ctrl+z", "Back to the shell", "fg returns", word="suspend"),
    Action("quit", "q", "Quit", "without starting anything", hint="quit", also="exit close"),
)

DOZEN = (
    "select",
    "best",
    "launch",
    "wait",
    "copy",
    "edit",
    "jobs",
    "processes",
    "topology",
    "device",
    "quit",
    "filter",
    "sort",
    "later",
    "detach",
)
"""The actions that the line of keys names, the most used first."""

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}

_SIGNS = {
    "enter": "⏎",
    "question_mark": "?",
    "slash": "/",
    "down": "↓",
    "up": "↑",
    "right": "→",
    "colon": ":",
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


def key_of(action_id: str, keymap: Keymap) -> str:
    """The key of an action as displayed, with the user's own keymap; where it has none, what to type for
    it: ":order"."""
    own = keymap.get(action_id)
    action = BY_ID[action_id]
    key = (not own and action.shown) or written((own or action.keys).split(",")[0].strip())
    return key or f"{written(keymap.get('palette', 'colon').split(',')[0])}{action.query}"


def by_key(keymap: Keymap) -> dict[str, str]:
    """The action (id) of each key in Textual's names, with the user's own keymap."""
    return {
        key.strip(): action.id
        for action in ACTIONS
        for key in keymap.get(action.id, action.keys).split(",")
        if key
    }
