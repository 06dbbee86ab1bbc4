"""A comparison as text: a table of its variants, and bars of each figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gputui.inventory.formatting import UNKNOWN, printable, size
from gputui.inventory.job_summary import how_it_failed
from gputui.inventory.text_table import aligned, cut
from gputui.planning.comparison import Basis, Comparison, Run, Spread, Summary, summaries

BASES: Mapping[Basis, str] = {
    "metric": "the figure that --metric finds",
    "runtime": "the time that the logs report (train_runtime)",
    "wall": "the time of the process, with its start",
}
"""What variants are compared by, for people."""

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEAST_BAR, _MOST_BAR = 8, 60
_MOST_LABEL = 40
_UNSET = "(unset)"


class Figure(NamedTuple):
    """A figure that has bars: its title, of what, and how a value is written."""

    name: str
    title: str
    of: Callable[[Summary], Spread | None]
    text: Callable[[float], str]


def seconds(value: float) -> str:
    """Seconds with a tenth, short times with a hundredth: "101.9 s", "1.23 s"."""
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def _rate(value: float) -> str:
    return f"{value:.1f}" if value >= 100 else f"{value:.3g}" if value < 1 else f"{value:.2f}"


def _bytes(value: float) -> str:
    return size(int(value))


def _percent(value: float) -> str:
    return f"{value:.0f}%"


def _plain(value: float) -> str:
    return f"{value:.6g}"


def figures(comparison: Comparison) -> list[Figure]:
    """The figures of which some variant has more than 0; first the one that variants are compared by."""
    basis = comparison.basis
    every = [
        Figure("metric", "metric", lambda each: each.metric, _plain),
        Figure("runtime", "time by the log", lambda each: each.runtime, seconds),
        Figure("wall", "time of the process", lambda each: each.wall, seconds),
        Figure("steps_per_second", "steps per second", lambda each: each.steps_per_second, _rate),
        Figure("peak_memory", "peak memory of a device", lambda each: each.peak_memory, _bytes),
        Figure("utilization", "mean utilization", lambda each: each.utilization, _percent),
    ]
    if basis == "runtime":
        # (One time is enough: the table has the other.)
        every = [each for each in every if each.name != "wall"]
    elif basis == "wall":
        every = [each for each in every if each.name != "runtime"]
    found = summaries(comparison)
    spreads = {each.name: [each.of(summary) for summary in found] for each in every}
    known = [each for each in every if any(spread and spread.median > 0 for spread in spreads[each.name])]
    return sorted(known, key=lambda each: each.name != basis)


def headline(comparison: Comparison) -> str:
    """What is compared, on what, and by what."""
    runs = f" × {comparison.repeat} runs" if comparison.repeat > 1 else ""
    on = f"GPU {','.join(comparison.devices)}" if comparison.devices else "the CPU"
    state = {"running": "running", "done": "", "stopped": "stopped before its end"}[comparison.state]
    wanted = len(comparison.rows) * comparison.repeat
    made = f"{comparison.made} of {wanted} runs" if comparison.made < wanted else ""
    words = [f"{len(comparison.rows)} variants{runs} on {on}", state, made]
    return printable(f"comparison {comparison.id}: " + ", ".join(filter(None, words)))


def by_what(comparison: Comparison) -> str:
    """What the differences are of."""
    which = "more" if comparison.more_is_better else "less"
    several = "; median, with the least and the most" if comparison.repeat > 1 else ""
    return f"compared by {BASES[comparison.basis]}: {which} is better{several}"


def table(comparison: Comparison, width: int | None = None) -> list[str]:
    """A line a variant below the headings. Where `width` columns are too few, it does without the time that
    variants are not compared by, then without the least and the most; what is left is cut."""
    found = summaries(comparison)
    lines: list[str] = []
    for other_time, spread in ((True, True), (False, True), (False, False)):
        lines = _table(comparison, found, other_time, spread)
        if width is None or max(map(len, lines)) <= width:
            return lines
    return [cut(line, width) for line in lines]


def _table(comparison: Comparison, found: Sequence[Summary], other_time: bool, spread: bool) -> list[str]:
    spread_of = _spread_of if spread else _median_of
    columns: list[tuple[str, Callable[[Summary], str]]] = []
    for name, heading, text in (
        ("metric", "METRIC", _plain),
        ("runtime", "LOG TIME", seconds),
        ("wall", "TIME", seconds),
    ):
        if name == comparison.basis:
            columns[:0] = [(heading, spread_of(name, text)), ("VS BEST", _difference)]
        elif other_time and any(getattr(each, name) is not None for each in found):
            columns.append((heading, spread_of(name, text)))
    columns += [
        ("STEPS/S", spread_of("steps_per_second", _rate)),
        ("MEMORY", _median_of("peak_memory", _bytes)),
        ("UTIL", _median_of("utilization", _percent)),
    ]
    axes = [printable(heading) for _, heading in comparison.axes]
    rows = [[*axes, *(heading for heading, _ in columns), "RESULT"]]
    for each in found:
        values = [_value(value) for value in each.row.values]
        rows.append([*values, *(text(each) for _, text in columns), result(comparison, each)])
    return aligned(rows, range(len(axes), len(axes) + len(columns)))


def result(comparison: Comparison, summary: Summary) -> str:
    """How the runs of a variant went, in a few words."""
    runs = summary.row.runs
    running = any(run.state == "running" for run in runs)
    words = [how(run) for run in summary.failed]
    ended = len(runs) - running
    good = ended - len(summary.failed)
    if comparison.repeat > 1 and words:
        words = [f"{len(words)} of {ended} failed ({', '.join(dict.fromkeys(words))})"]
    if running:
        words.append("running" if comparison.state == "running" else "not finished")
    if not runs:
        words.append("waits" if comparison.state == "running" else "not run")
    return ", ".join(words) or ("ok" if comparison.repeat == 1 else f"{good} of {comparison.repeat} ok")


def how(run: Run) -> str:
    """How a run ended, which did not go well."""
    if run.reason is not None:
        return printable(run.reason)
    if run.state == "timeout":
        return "took too long"
    if run.state == "stopped":
        return "stopped"
    return "status not known" if run.status is None else how_it_failed(run.status, run.signal)


def bars(comparison: Comparison, figure: Figure, width: int, ascii_only: bool = False) -> list[str]:
    """A bar a variant, from 0 to the most; the best of what variants are compared by is marked."""
    found = summaries(comparison)
    labels = [cut(printable(comparison.label(each.row)), _MOST_LABEL) for each in found]
    spreads = [figure.of(each) for each in found]
    texts = [UNKNOWN if spread is None else figure.text(spread.median) for spread in spreads]
    if figure.name == comparison.basis:
        texts = [f"{text} {_difference(each)}".rstrip() for text, each in zip(texts, found, strict=True)]
    wide = max(map(len, labels))
    wide = max(1, min(wide, width - _LEAST_BAR - max(map(len, texts)) - 4))
    room = min(_MOST_BAR, max(_LEAST_BAR, width - wide - max(map(len, texts)) - 4))
    most = max((spread.median for spread in spreads if spread is not None), default=0.0)
    lines = []
    for name, spread, text in zip(labels, spreads, texts, strict=True):
        fraction = spread.median / most if spread is not None and most > 0 else 0.0
        lines.append(f" {cut(name, wide).ljust(wide)}  {_bar(fraction, room, ascii_only)} {text}".rstrip())
    return lines


def plot(comparison: Comparison, width: int, ascii_only: bool = False) -> list[str]:
    """The bars of every figure, each below its title."""
    lines: list[str] = []
    for figure in figures(comparison):
        lines += ["", figure.title, *bars(comparison, figure, width, ascii_only)]
    return lines


def _bar(fraction: float, room: int, ascii_only: bool) -> str:
    fraction = min(1.0, max(0.0, fraction))
    if ascii_only:
        return ("#" * round(fraction * room)).ljust(room)
    eighths = round(fraction * room * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(room)


def _value(value: str) -> str:
    return printable(value) if value else _UNSET


def _spread_of(name: str, text: Callable[[float], str]) -> Callable[[Summary], str]:
    def cell(summary: Summary) -> str:
        spread: Spread | None = getattr(summary, name)
        if spread is None:
            return UNKNOWN
        told = text(spread.median)
        if spread.low == spread.high:
            return told
        return f"{told} ({text(spread.low).removesuffix(' s')}-{text(spread.high).removesuffix(' s')})"

    return cell


def _median_of(name: str, text: Callable[[float], str]) -> Callable[[Summary], str]:
    def cell(summary: Summary) -> str:
        spread: Spread | None = getattr(summary, name)
        return UNKNOWN if spread is None else text(spread.median)

    return cell


def _difference(summary: Summary) -> str:
    if summary.difference is None:
        return "" if summary.basis is None else UNKNOWN
    return "best" if summary.difference == 0 else f"{summary.difference:+.1f}%"


def lines(comparison: Comparison, width: int | None, ascii_only: bool = False) -> Sequence[str]:
    """The whole: headline, table, by what it is compared, and the bars."""
    known = any(each.basis is not None for each in summaries(comparison))
    return [
        headline(comparison),
        "",
        *table(comparison, width),
        *(["", by_what(comparison)] if known else []),
        *(plot(comparison, width or 100, ascii_only) if known else []),
    ]
