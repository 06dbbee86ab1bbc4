"""How sizes, durations and names are written for users and parsed; how untrusted text is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from gputui.inventory.duration import duration as duration

GIB = 1024**3
MIB = 1024**2

YOU = "you"
UNKNOWN = "–"
"""The text for an unknown fact, which is never shown as 0."""

_PREFIXES = ("NVIDIA GeForce ", "NVIDIA ", "Tesla ", "AMD Instinct ", "AMD Radeon ", "AMD ")


def size(amount: int | None) -> str:
    """Bytes as GiB with one decimal, "22.4G": the unit of every memory on our screens; "–" for not known."""
    return UNKNOWN if amount is None else f"{amount / GIB:.1f}G"


def number(value: float | None, unit: str = "") -> str:
    """A number without decimals, followed by its unit; "–" where it is not known."""
    return UNKNOWN if value is None else f"{value:.0f}{unit}"


def peak_size(amount: int) -> str:
    """`size` of a program's peak memory; a small peak is "under 0.1G", not 0."""
    return size(amount) if amount >= GIB // 10 else "under 0.1G"


def energy(joules: float | None) -> str:
    """Energy in kWh, "1.2 kWh"; a small one in Wh."""
    if joules is None:
        return UNKNOWN
    return f"{joules / 3.6e6:.1f} kWh" if joules >= 3.6e6 else f"{max(0.0, joules) / 3600:.1f} Wh"


class Seen(float):
    """A span of time as far as it was observed, or the moment from which it was: what was seen all that time
    may have begun before. A plain number is exact."""

    __slots__ = ()

    @staticmethod
    def span(since: float, until: float) -> float:
        """The seconds since a moment: no more exact than the moment is."""
        seconds = until - since
        return Seen(seconds) if isinstance(since, Seen) else seconds


def at_least(seconds: float) -> str:
    """ "3m", or "≥3m" of a span that may be longer."""
    return f"{'≥' * isinstance(seconds, Seen)}{duration(seconds)}"


def age(since: float | None, now: float) -> str:
    """The span from a time to `now`, both in epoch seconds; "–" where the time is not known."""
    return UNKNOWN if since is None else duration(now - since)


def by(client: str | None) -> str:
    """The agent that asked for something, behind what it is: " (by my-agent)"; "" for a person."""
    return f" (by {printable(client)})" if client else ""


def in_time(until: float | None, now: float) -> str:
    """When a job ends at the latest, from epoch seconds: "in 2h10m"; "" where that is not known, or where the
    moment has passed (the limit does not run while the machine is suspended)."""
    return "" if until is None or until < now - 15 else f"in {duration(until - now)}"


def is_digits(text: str) -> bool:
    """Whether a text is a number in ASCII digits: `int` reads those of other scripts, too."""
    return text.isascii() and text.isdigit()


def whole_between(text: str, least: int, most: int) -> int | None:
    """Parse at most nine digits, a number from `least` to `most`; None for any other text."""
    number = int(text) if is_digits(text) and len(text) < 10 else -1
    return number if least <= number <= most else None


_DURATION_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def read_duration(text: str, least: float = 0.0, most: float = 366 * 86_400.0) -> float:
    """Parse seconds: "90", "90s", "30m", "2h", "1d". Raises ValueError, also outside `least` to `most`."""
    digits, unit = (text[:-1], text[-1]) if text[-1:] in _DURATION_UNITS else (text, "s")
    try:
        seconds = float(digits) * _DURATION_UNITS[unit]
    except ValueError:
        raise ValueError(f"{text!r} is not a time (90, 30m, 2h, 7d)") from None
    if not least <= seconds <= most:
        shortest = f"{least:g}s" if least < 1 else duration(least)
        raise ValueError(f"{text!r} is not a time from {shortest} to {duration(most)}")
    return seconds


@lru_cache(maxsize=512)
def short_name(name: str) -> str:
    """The name of a device without its maker: "NVIDIA GeForce RTX 3090" is "RTX 3090", an instance
    "1g.10gb MIG"."""
    name = printable(name)
    if " MIG " in name:
        return name.split(" MIG ", 1)[1] + " MIG"
    if name.endswith("]") and "[" in name:
        # pci.ids: the chip, and the product name in brackets.
        sold = name[name.rindex("[") + 1 : -1].removeprefix("AMD ").removeprefix("Instinct ")
        name = name if not sold or sold.startswith("0x") else sold
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


Tell = Callable[[str], object]
"""Gets a line for the user."""

TextWriter = Callable[[str], None]
"""Takes a text: a terminal, or the clipboard of the person at it."""


def nth(number: int) -> str:
    """ "1st", "22nd"."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"


def gpus(labels: Sequence[str]) -> str:
    """Devices by their labels, for a sentence: "GPU 4", "GPUs 4 and 5", "GPUs 2, 4 and 5".

    A cell of a table has "GPU 4,5".
    """
    shown = [printable(label) for label in labels]
    return f"GPUs {', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else f"GPU {''.join(shown)}"


def counted(number: int, what: str) -> str:
    """ "1 GPU", "2 GPUs"."""
    return f"{number} {what}{'s' * (number != 1)}"


def devices_text(count: int) -> str:
    """ "1 GPU", "2 GPUs". With a number, as a name or a count, every device is a GPU in words: "GPU 0:1"."""
    return counted(count, "GPU")


def short_bus_id(bus_id: str) -> str:
    """ "00000000:57:00.0" is "57:00.0"; another PCI domain is kept: "0002:57:00.0"."""
    domain, _, rest = bus_id.partition(":")
    return rest if not domain.strip("0") else f"{domain[-4:]}:{rest}"


def printable(text: str) -> str:
    """Foreign text in which characters that move a cursor, hide, reorder or cover text are shown as "·".

    Escape sequences, newlines, bidirectional marks and lone surrogates in other users' process names
    must not reach a terminal, nor piles of combining marks. A space of any kind becomes a plain space.
    """
    # Mostly it is plain: a cache would take longer than this check, and keep thousands of texts.
    return text if text.isascii() and text.isprintable() else _printable(text)


@lru_cache(maxsize=256)
def _printable(text: str) -> str:
    # Imported here: most text is ASCII.
    from gputui.inventory.piled_marks import PiledMarks

    fits = PiledMarks().fits
    return "".join(c if fits(c) and c.isprintable() else " " if c.isspace() else "·" for c in text)


def person(user: str, own: bool) -> str:
    """The name of a user for display: our own user is "you" everywhere. JSON has the name."""
    return YOU if own else printable(user)


def person_or_job(user: str, own: bool, job: str | None) -> str:
    """ "your job m6u5" for a job of our own, else the user as in `person`."""
    return f"your job {printable(job)}" if own and job else person(user, own)


def program(command: str) -> str:
    """The program of a command line, for a narrow column; for an interpreter, its script or module.

    "/usr/bin/python3 -u src/train.py" is "train.py", "python -m pkg.train" is "pkg.train".
    """
    name, *words = [word.rsplit("/", 1)[-1] or word for word in printable(command).split()] or [UNKNOWN]
    python = _PYTHON.fullmatch(name)
    while python and words and words[0] in _VALUED:
        del words[:2]
    while python and words and _FLAGS.fullmatch(words[0]):
        del words[0]
        while words and words[0] in _VALUED:
            del words[:2]
    if python and len(words) > 1 and words[0] == "-m":
        return words[1]
    if words and not words[0].startswith("-") and (python or name in _INTERPRETERS):
        return words[0]
    return name


_PYTHON = re.compile(r"(python|pypy)([0-9]+(\.[0-9]+)*t?d?)?")
_INTERPRETERS = ("bash", "dash", "julia", "node", "perl", "ruby", "Rscript", "sh", "zsh")
_VALUED = ("-X", "-W")
_FLAGS = re.compile(r"-([bBdEiIOPqRsSuvx]+|[XW].+)")


def without_path(command: str) -> str:
    """A command line with only the name of its program: "/usr/bin/python3 -m x" is "python3 -m x"."""
    path, blank, rest = command.partition(" ")
    name = path.rsplit("/", 1)[-1] if path.startswith("/") else path
    return f"{name or path}{blank}{rest}"


_UNITS = {"": 1, "K": 1024, "M": MIB, "G": GIB, "T": 1024 * GIB}


def read_size(text: str) -> int:
    """Parse a size to bytes: "20G", "20GiB", "20GB" are 20 × 2^30, as in nvidia-smi. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]?)(?:i?B)?", text, re.IGNORECASE | re.ASCII)
    if match is None or len(text) > 32:
        raise ValueError(f"{text!r} is not a size (20G, 512M)")
    amount = int(float(match[1]) * _UNITS[match[2].upper()])
    if 0 < amount < MIB and not match[2]:
        raise ValueError(f"{text!r} is {amount} bytes; a unit is missing ({text}G, {text}M)")
    return amount
