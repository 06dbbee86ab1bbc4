"""The comparisons: a line each; the table of one of them, and the bars of one of its figures."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.formatting import UNKNOWN, duration, printable
from gputui.planning.comparison import Comparison, summaries
from gputui.planning.comparison_text import bars, by_what, figures, table
from gputui.tui.views.text import Line, clip, fit, title, wrap

_SIGNS: dict[str, tuple[str, str]] = {
    "running": ("▶", "free"),
    "done": ("✓", "dim"),
    "stopped": ("■", "warn"),
}
_NONE = " no comparisons: v on the jobs page or gputui compare makes one"


def headline(found: Sequence[Comparison], unreadable: int, width: int) -> Line:
    """The rule at the top: how many there are, and how many cannot be read (the command line says why)."""
    running = sum(each.state == "running" for each in found)
    counts = [f"{running} of {len(found)} running"] if found else []
    counts += [f"{unreadable} cannot be read: gputui compare --list"] if unreadable else []
    return title("comparisons", width, ", ".join(counts))


def listed(found: Sequence[Comparison], cursor: int, width: int, now: float) -> list[Line]:
    """A line a comparison. `now` is seconds since the epoch."""
    if not found:
        return [clip(((_NONE, "dim"),), width)]
    titles = [printable(each.title) for each in found]
    wide = min(40, max(map(len, titles)))
    lines = []
    for place, (each, name) in enumerate(zip(found, titles, strict=True)):
        sign, style = _SIGNS[each.state]
        runs = f"{each.made}/{len(each.rows) * each.repeat}"
        line: Line = (
            ("▸" if place == cursor else " ", "cursor"),
            (f" {fit(each.id, 4)}  ", "strong"),
            (f"{sign} {fit(each.state, 7)}", style),
            (f"  {runs:>7}  {fit(duration(max(0.0, now - each.created)), 6, right=True)} ago  ", "dim"),
            (f"{fit(name, wide)}  ", "strong" if place == cursor else ""),
            (_best(each), "dim"),
        )
        lines.append(clip(line, width))
    return lines


def _best(comparison: Comparison) -> str:
    best = next((each for each in summaries(comparison) if each.difference == 0), None)
    if best is None:
        return UNKNOWN
    so_far = " so far" if comparison.state == "running" else ""
    return f"best{so_far} {printable(comparison.label(best.row))}"


def details(comparison: Comparison, figure: int, width: int, room: int) -> list[Line]:
    """The table of a comparison and the bars of one of its figures, the `figure`-th (they go round), with
    those of the next ones as far as `room` has lines for them."""
    runs = f" × {comparison.repeat} runs" if comparison.repeat > 1 else ""
    on = f"GPU {','.join(map(printable, comparison.devices))}" if comparison.devices else "the CPU"
    lines = [title(f"{comparison.id}: {len(comparison.rows)} variants{runs} on {on}", width)]
    heading, *rows = table(comparison, width - 1)
    lines.append(clip(((f" {heading}", "dim"),), width))
    for row, summary in zip(rows, summaries(comparison), strict=True):
        style = "strong" if summary.difference == 0 else "lost" if summary.failed else ""
        lines.append(clip(((f" {row}", style),), width))
    known = figures(comparison)
    if not known:
        return lines
    lines += [((f" {piece}", "dim"),) for piece in wrap(by_what(comparison), width - 2)]
    start = figure % len(known)
    for place in range(start, start + len(known)):
        number = place % len(known)
        shown = known[number]
        block = [title(shown.title, width, f"{number + 1} of {len(known)}: tab")]
        block += [clip(((line, ""),), width) for line in bars(comparison, shown, width)]
        if place > start and len(lines) + len(block) > room:
            break
        lines += block
    return lines
