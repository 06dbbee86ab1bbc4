"""The result of a check: each device as the command's own Python sees it, and the conclusion."""

from __future__ import annotations

from collections.abc import Iterator

from gputui.checking.render import lines
from gputui.checking.report import Comparison, Report
from gputui.inventory.formatting import printable, short_bus_id, short_name, size
from gputui.tui.views.text import Line, fit, hanging, told_lines


def report_lines(report: Report, width: int) -> Iterator[Line]:
    """The interpreter, two lines per device, and a conclusion in one sentence."""
    if report.doubt:
        yield from told_lines(report.doubt, "warn", width)
    if report.seen is not None:
        yield from told_lines(lines(report)[0], "dim", width)
    yield (("", ""),)
    for number, each in enumerate(report.comparisons):
        yield from _device_lines(report, number, each)
    if report.comparisons:
        yield (("", ""),)
    sign, style = ("✓", "free") if report.equal else ("✕", "lost")
    yield from hanging(((f" {sign} ", style), (printable(report.conclusion), "strong")), width)


def _device_lines(report: Report, number: int, each: Comparison) -> Iterator[Line]:
    sign, style = ("✓", "free") if each.state == "equal" else ("✕", "lost")
    device, seen = each.chosen, each.seen
    facts = ""
    if seen is not None:
        bus = short_bus_id(seen.bus) if seen.bus else "-"
        memory = size(seen.memory) if seen.memory else "-"
        facts = f"{bus:<9} {fit(short_name(seen.name or '-'), 18)} {memory:>7}  "
    head: Line = (
        (f" {sign} ", style),
        (f"{report.vendor.device(number):<8}", "strong"),
        (f"{fit(each.selected_in(report.snapshot), 8)} ", ""),
        (printable(facts), ""),
    )
    # The sign says that it is equal, as the conclusion does.
    verdict = each.verdict if each.seen is not None else "missing: the command's Python does not see it"
    yield (*head, ("" if each.state == "equal" else printable(verdict), style))
    uuid = (seen.uuid if seen else None) or (device.uuid if device else None)
    if uuid:
        yield ((f"           {'' if seen else 'selected: '}{printable(uuid)}", "dim"),)
