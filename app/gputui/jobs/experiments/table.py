"""An experiment as text: a table of its variants, and bars of each figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from gputui.inventory.columns import Column, printed
from gputui.inventory.formatting import UNKNOWN, duration, printable, size
from gputui.inventory.job import how_it_ended
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.quoting import quote
from gputui.inventory.text_table import bar, cut
from gputui.jobs.experiments.record import Basis, Experiment, Run, Summary, summaries

BASES: Mapping[Basis, str] = {
    "metric": "the figure that --metric finds",
    "runtime": "the time that the logs report (train_runtime)",
    "wall": "the time of the process, with its start",
}
"""A description of each basis of a comparison, for people."""

_LEAST_BAR, _MOST_BAR = 8, 60
_MOST_LABEL, _MOST_WHAT = 40, 60
_UNSET = "(unset)"


class Figure(NamedTuple):
    """A figure of a run: its name in the JSON, its heading in the table, the title of its bars, and the
    function that formats a value."""

    name: str
    heading: str
    title: str
    text: Callable[[float], str]


def seconds(value: float) -> str:
    """Format seconds with one decimal, or with two below 10 s: "101.9 s", "1.23 s"."""
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def _rate(value: float) -> str:
    return f"{value:.1f}" if value >= 100 else f"{value:.3g}" if value < 1 else f"{value:.2f}"


_FIGURES = (
    Figure("metric", "METRIC", "metric", lambda value: f"{value:.6g}"),
    Figure("runtime", "LOG TIME", "time by the log", seconds),
    Figure("wall", "TIME", "time of the process", seconds),
    Figure("steps_per_second", "STEPS/S", "steps per second", _rate),
    Figure("peak_memory", "MEMORY", "peak memory of a device", lambda value: size(int(value))),
    Figure("utilization", "UTIL", "mean utilization", lambda value: f"{value:.0f}%"),
)


def figures(experiment: Experiment) -> list[Figure]:
    """Return the figures for bars: those of which some variant has more than 0. The figure that variants are
    compared by is the first."""
    basis = experiment.basis
    # Bars of one time are enough: the table also has the other.
    other_time = {"runtime": "wall", "wall": "runtime", "metric": ""}[basis]
    found = summaries(experiment)

    def is_known(name: str) -> bool:
        spreads = (summary.spreads[name] for summary in found)
        return any(spread is not None and spread.median > 0 for spread in spreads)

    known = [each for each in _FIGURES if each.name != other_time and is_known(each.name)]
    return sorted(known, key=lambda each: each.name != basis)


def headline(experiment: Experiment) -> str:
    """Summarize the state of an experiment in one line."""
    kind, repeat = experiment.request.kind, experiment.request.repeat
    what = "variants" if kind == "comparison" else "tasks"
    runs = f" × {repeat} runs" if repeat > 1 else ""
    on = f" on GPU {','.join(experiment.devices)}" if experiment.devices else " on the CPU"
    on = on if kind == "comparison" and any(row.runs for row in experiment.rows) else ""
    parts = [f"{experiment.count('done')}/{len(experiment.rows)} {what}{runs} done{on}"]
    for state in ("running", "waiting", "failed", "timeout", "stopped"):
        number = experiment.count(state)
        parts += [f"{number} {'took too long' if state == 'timeout' else state}"] if number else []
    return printable(f"{experiment.name} {experiment.outcome}: {', '.join(parts)}")


def by_what(experiment: Experiment) -> str:
    """Describe the figure that variants are compared by, and whether higher or lower is better."""
    which = "higher" if experiment.more_is_better else "lower"
    several = "; median, minimum and maximum" if experiment.request.repeat > 1 else ""
    return f"compared by {BASES[experiment.basis]}: {which} is better{several}"


class Place(NamedTuple):
    """The context of the columns for times and logs of tasks: the home directory that
    "~" abbreviates, and the present time (seconds since the epoch)."""

    home: PurePath | None
    now: float


def table(experiment: Experiment, width: int | None = None, place: Place | None = None) -> list[str]:
    """Return the headings, and one line per variant. With `place`, the line of a task also has the path of
    its log.

    If the table is wider than `width` columns, it omits the time that variants are not compared by, then also
    the minimum and the maximum; after that, lines are cut.
    """
    found = summaries(experiment)
    lines: list[str] = []
    for other_time, spread in ((True, True), (False, True), (False, False)):
        lines = printed(_columns(experiment, found, other_time, spread, place), found)
        if width is None or max(map(len, lines)) <= width:
            return lines
    return [cut(line, width) for line in lines]


def _columns(
    experiment: Experiment, found: Sequence[Summary], other_time: bool, spread: bool, place: Place | None
) -> list[Column[Summary]]:
    sweep, basis = experiment.request.kind == "sweep", experiment.basis
    first = [_value(number, heading) for number, (_, heading) in enumerate(experiment.axes)]
    if sweep:
        first = [
            Column("TASK", lambda each: str(each.number), right=True),
            Column("WHAT", lambda each: cut(printable(each.row.label), _MOST_WHAT)),
            Column("GPU", _devices),
            Column("TIME", lambda each: _took(each, place), right=True),
        ]

    def is_shown(figure: Figure) -> bool:
        known = any(each.spreads[figure.name] is not None for each in found)
        if figure.name == basis or figure.name not in ("metric", "runtime", "wall"):
            return known or not sweep
        return known and other_time

    figures = [each for each in _FIGURES if is_shown(each) and not (sweep and each.name == "wall")]
    figures.sort(key=lambda figure: figure.name != basis)
    columns = [_figure(each, spread and each.name in (basis, "steps_per_second")) for each in figures]
    if experiment.compares and figures and figures[0].name == basis:
        columns.insert(1, Column("VS BEST", _difference, right=True))
    columns = [*first, *columns, Column("RESULT", lambda each: how_it_went(experiment, each))]
    return [*columns, _log_column(experiment, place)] if place is not None and sweep else columns


def _value(place: int, heading: str) -> Column[Summary]:
    return Column(printable(heading), lambda each: printable(each.row.values[place]) or _UNSET)


def _devices(summary: Summary) -> str:
    last = summary.row.last
    return ",".join(map(printable, summary.row.devices)) or ("CPU" if last and last.job is not None else "")


def _log_column(experiment: Experiment, place: Place) -> Column[Summary]:
    def text(summary: Summary) -> str:
        log = experiment.log(summary.row.last)
        if log is None:
            return ""
        at_home = place.home is not None and log.is_relative_to(place.home)
        return printable(f"~/{log.relative_to(place.home)}" if at_home and place.home else str(log))

    return Column("LOG", text)


def how_it_went(experiment: Experiment, summary: Summary) -> str:
    """Summarize the runs of a variant in a few words."""
    runs = [run for run in summary.row.runs if run.state != "waiting"]
    running = any(run.state == "running" for run in runs)
    words = [how(run) for run in summary.failed]
    ended = len(runs) - running
    if experiment.request.repeat > 1 and words:
        words = [f"{len(words)} of {ended} failed ({', '.join(dict.fromkeys(words))})"]
    if running:
        goes_on = experiment.state == "running" or experiment.request.kind == "sweep"
        words.append("running" if goes_on else "not finished")
    if not runs:
        words.append("waits" if experiment.state == "running" else "not run")
    if words:
        return ", ".join(words)
    again = runs[-1].attempts
    said = "ok" if experiment.request.repeat == 1 else f"{ended} of {experiment.request.repeat} ok"
    return f"{said}, attempt {again}" if again > 1 else said


def how(run: Run) -> str:
    """Describe the state or the outcome of a run in words."""
    said = {"done": "ok", "timeout": "took too long"}.get(run.state, str(run.state))
    if run.state == "failed":
        said = (
            "failed"
            if run.status is None
            else how_it_ended(run.status, run.signal).removeprefix("ended with ")
        )
        said += f" ({printable(run.reason)})" if run.reason is not None else ""
    return f"{said}, attempt {run.attempts}" if run.attempts > 1 else said


def took(run: Run) -> str:
    """Format the duration of a run."""
    return UNKNOWN if run.wall is None else f"{run.wall:.1f}s" if run.wall < 10 else duration(run.wall)


def _took(summary: Summary, place: Place | None) -> str:
    """Format the duration of the last run of a task, which may still be running."""
    run = summary.row.last
    if run is None or run.started is None:
        return ""
    return took(replace(run, wall=place.now - run.started) if run.state == "running" and place else run)


def bars(experiment: Experiment, figure: Figure, width: int) -> list[str]:
    """Return one bar per variant, from 0 to the maximum. For the figure that variants are compared by, the
    best one is marked and the others have their difference."""
    found, basis = summaries(experiment), experiment.basis
    labels = [cut(printable(each.row.label), _MOST_LABEL) for each in found]
    spreads = [each.spreads[figure.name] for each in found]
    texts = [UNKNOWN if spread is None else figure.text(spread.median) for spread in spreads]
    if figure.name == basis:
        texts = [f"{text} {_difference(each)}".rstrip() for text, each in zip(texts, found, strict=True)]
    wide = max(map(len, labels))
    wide = max(1, min(wide, width - _LEAST_BAR - max(map(len, texts)) - 4))
    room = min(_MOST_BAR, max(_LEAST_BAR, width - wide - max(map(len, texts)) - 4))
    most = max((spread.median for spread in spreads if spread is not None), default=0.0)
    lines = []
    for name, spread, text in zip(labels, spreads, texts, strict=True):
        fraction = spread.median / most if spread is not None and most > 0 else 0.0
        lines.append(f" {cut(name, wide).ljust(wide)}  {bar(fraction, room).ljust(room)} {text}".rstrip())
    return lines


def _figure(figure: Figure, spread: bool) -> Column[Summary]:
    def text(summary: Summary) -> str:
        found = summary.spreads[figure.name]
        if found is None:
            return UNKNOWN
        told = figure.text(found.median)
        if figure.name == "utilization" and summary.row.last and len(summary.row.last.utilizations) > 1:
            each = (UNKNOWN if one is None else f"{one:.0f}" for one in summary.row.last.utilizations)
            return f"{told} ({','.join(each)})"
        if not spread or found.low == found.high:
            return told
        least, most = (figure.text(value).removesuffix(" s") for value in (found.low, found.high))
        return f"{told} ({least}-{most})"

    return Column(figure.heading, text, right=True)


def _difference(summary: Summary) -> str:
    if summary.difference is None:
        return "" if summary.basis is None else UNKNOWN
    return "best" if summary.difference == 0 else f"{summary.difference:+.1f}%"


def lines(experiment: Experiment, width: int | None, place: Place | None = None) -> Sequence[str]:
    """Return the complete text: the headline, the table and, if variants are compared, the basis and the bars
    of every figure."""
    found = [headline(experiment), "", *table(experiment, width, place)]
    if experiment.compares and any(each.basis is not None for each in summaries(experiment)):
        found += ["", by_what(experiment)]
        for figure in figures(experiment):
            found += ["", figure.title, *bars(experiment, figure, width or 100)]
    return found


def experiment_columns(now: float) -> list[Column[Experiment]]:
    """The columns of the list of experiments. `now` is seconds since the epoch."""
    return [
        Column("ID", lambda each: each.id, "strong"),
        Column("STATE", lambda each: each.outcome),
        Column("RUNS", lambda each: f"{each.runs_over}/{each.runs_in_all}"),
        Column("FAILED", lambda each: str(each.count("failed", "timeout") or UNKNOWN)),
        Column("BEGAN", lambda each: f"{duration(max(0.0, now - each.created))} ago"),
        Column("VARIED", lambda each: cut(printable(each.title), _MOST_LABEL)),
        Column("BEST", lambda each: printable(_best(each))),
        Column("COMMAND", _command),
    ]


def _command(experiment: Experiment) -> str:
    command = experiment.request.launch.options.command or experiment.rows[0].words
    return " ".join(map(quote, command))


def _best(experiment: Experiment) -> str:
    """The label of the best variant, with which the others are compared."""
    found = summaries(experiment) if experiment.compares else []
    best = next((each.row.label for each in found if each.difference == 0), UNKNOWN)
    return f"{best} so far" if best != UNKNOWN and experiment.state == "running" else best
