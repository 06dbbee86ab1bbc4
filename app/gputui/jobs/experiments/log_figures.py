"""Read figures from the log of a training: its time, its steps per second, and a user's own metric."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_MOST_LINE = 4000
"""Characters at the end of a line that are searched: a progress bar ends with its latest state."""

_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{0,15})?(?:[eE][-+]?[0-9]{1,3})?)"
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CLOCK = r"((?:[0-9]{1,5} days?, )?[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?)"

# transformers, trainer_utils.speed_metrics prints a dictionary of floats (of strings since 5.0).
# Trainer.log_metrics prints the same figures again as "train_runtime = 0:01:41.90".
_IS = r"""['"]? {0,40}[:=] {0,40}['"]?"""
_RUNTIME = re.compile(rf"\btrain_runtime{_IS}(?:{_CLOCK}|{_NUMBER})")
_TRAINER = re.compile(rf"\btrain_steps_per_second{_IS}{_NUMBER}")
_OLD_TRAINER = re.compile(rf"\btrain_samples_per_second{_IS}{_NUMBER}")
"""Before 4.7, transformers gave steps per second this name and had no train_steps_per_second."""

_STEP = r"(?:steps?|it|iters?|iterations?|batch(?:es)?)"
_BAR = re.compile(
    r"\| ?(?P<done>[0-9.]{1,15})/(?P<total>[0-9.]{1,15}) \[(?P<elapsed>[0-9]{1,5}(?::[0-9]{2}){1,2})<"
    rf"[^,\]]{{0,30}}, {{0,9}}(?P<rate>[0-9.]{{1,15}}) ?(?P<unit>{_STEP}/s|s/{_STEP})"
)
"""A progress bar of tqdm. The rate in its last line is the mean of the whole run, because `close` prints it
without the moving average (tqdm/std.py)."""
_RATE = re.compile(rf"(?<![\w.]){_NUMBER} ?{_STEP} ?/ ?s(?:ec(?:ond)?)?\b", re.IGNORECASE)
_NAMED_RATE = re.compile(
    rf"\b(?:steps|iterations|it)(?:_per_| per |/)s(?:ec(?:ond)?)?{_IS}{_NUMBER}", re.IGNORECASE
)
_TIME = re.compile(rf"(?<![\w.]){_NUMBER} ?(?P<unit>ms|s) ?/ ?{_STEP}\b", re.IGNORECASE)
_MEGATRON = re.compile(rf"elapsed time per iteration \(ms\): {_NUMBER}")
# All repetitions above are bounded, so that no line takes long.
_SIGNS = ("/s", "/ s", "/it", "/ it", "/batch", "per_s", "per s", "per iteration", "train_runtime")
"""Every line that one of the patterns above matches contains one of these; searching for them is fast."""


class Figures(NamedTuple):
    """The figures of a log; None where the log lacks the figure.

    runtime           seconds that the training took by its own clock, without start-up
    steps_per_second
    metric            the last number that the user's pattern matched
    """

    runtime: float | None = None
    steps_per_second: float | None = None
    metric: float | None = None


def read_metric(pattern: str) -> re.Pattern[str]:
    """Compile the user's pattern. Raises ValueError if it is not a regular expression with exactly one
    group."""
    try:
        made = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    if made.groups != 1:
        raise ValueError(f"{pattern!r} has {made.groups} groups: one is needed, around the number")
    return made


def read_figures(lines: Iterable[str], metric: re.Pattern[str] | None = None) -> Figures:
    """Read the figures in the lines of a log. Of several figures of one kind, the last one counts. Of several
    bars, the one that took longest counts, as a training also has short ones (loading, evaluation).

    For steps per second, the Trainer's own figure takes precedence over a bar, and a bar over any other text.
    """
    runtime = trainer = old_trainer = told = found = None
    bars: dict[tuple[str, str], tuple[float, float]] = {}
    for line in lines:
        line = _COLOUR.sub("", line[-_MOST_LINE:]) if "\x1b" in line else line[-_MOST_LINE:]
        if metric is not None:
            for own in metric.finditer(line):
                found = _number(own[1], found)
        if not any(sign in line for sign in _SIGNS):
            continue
        if "train_" in line:
            if (match := _RUNTIME.search(line)) is not None:
                runtime = _seconds(match[1]) if match[1] else _number(match[2], runtime)
            if (match := _TRAINER.search(line)) is not None:
                trainer = _number(match[1], trainer)
            if (match := _OLD_TRAINER.search(line)) is not None:
                old_trainer = _number(match[1], old_trainer)
        if (match := _BAR.search(line)) is not None:
            rate = _number(match["rate"], None)
            if rate:
                rate = 1 / rate if match["unit"].startswith("s/") else rate
                name = line[: match.start()].partition("%")[0].rstrip("0123456789 ")
                bars[name, match["total"]] = _seconds(match["elapsed"]), rate
            continue
        told = _rate(line) or told
    steps = trainer
    if steps is None:
        steps = old_trainer
    if steps is None and bars:
        steps = max(bars.values(), key=lambda bar: bar[0])[1]
    return Figures(runtime, told if steps is None else steps, found)


def _rate(line: str) -> float | None:
    """The steps per second in a line that is not a progress bar, or None."""
    if (match := _RATE.search(line) or _NAMED_RATE.search(line)) is not None:
        return _number(match[1], None)
    if (match := _MEGATRON.search(line)) is not None:
        milliseconds = _number(match[1], None)
        return 1000 / milliseconds if milliseconds else None
    if (match := _TIME.search(line)) is not None:
        time = _number(match[1], None)
        return (1000 if match["unit"].lower() == "ms" else 1) / time if time else None
    return None


def _number(text: str | None, otherwise: float | None) -> float | None:
    """Parse the number; return `otherwise` if a user's pattern has matched something else."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return otherwise
    return value if abs(value) < float("inf") else otherwise


def _seconds(clock: str) -> float:
    """Convert "1:41", "0:01:41.90" or "1 day, 0:00:10.00" to seconds."""
    days, _, rest = clock.rpartition(",")
    seconds = 0.0
    for part in rest.strip().split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + (86_400 * int(days.split()[0]) if days else 0)
