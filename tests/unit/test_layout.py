"""The layout of the main screen: who gets room, at which size."""

from __future__ import annotations

from itertools import product

import pytest

from gputui.tui.layout import Column, Part, Size, launch_room, lay_out, share

PROCESSES = Part("processes", Size(4, 12), "side", True)
TIMELINES = Part("timelines", Size(4, 18), "table", True)
JOBS = Part("jobs", Size(3, 5), "side", False)
LINKS = Part("links", Size(10, 10), "side", False)


WIDTHS = (40, 60, 80, 119, 120, 130, 179, 180, 200, 320)
HEIGHTS = (5, 8, 10, 12, 13, 15, 24, 40, 60, 100)


def test_nothing_overlaps_and_nothing_is_left_over() -> None:
    parts = [PROCESSES, TIMELINES, JOBS, LINKS]
    least = {part.name: part.size.least for part in parts}
    for width, height, devices in product(WIDTHS, HEIGHTS, (0, 1, 8, 16, 72)):
        below = 5 if height >= 13 else 2
        layout = lay_out(width, height, devices, below, parts)
        body = max(1, height - below - 1 - layout.header - layout.message)
        assert layout.table >= 1 and layout.table + lines_of(layout.left) <= body
        columns = [each for each in (layout.left, layout.beside, layout.bottom) if each is not None]
        if layout.beside is not None:
            assert layout.left.width + 1 + layout.beside.width == width
            beneath = lines_of(layout.bottom) if layout.bottom else 0
            assert max(layout.table + lines_of(layout.left), lines_of(layout.beside)) + beneath <= body
        if width >= 120 and height >= 40 and devices:
            # Every line says something: some panel grows into what is left.
            last = layout.bottom or layout.beside
            assert last is not None and layout.beside is not None
            assert lines_of(last) + (lines_of(layout.beside) if layout.bottom else 0) == body
        for column in columns:
            assert all(lines >= least[name] for name, lines in column.heights)


def lines_of(column: Column) -> int:
    return sum(lines for _, lines in column.heights)


@pytest.mark.parametrize(("height", "below"), [(15, 5), (10, 2), (8, 2)])
def test_a_short_terminal_has_three_lines_of_the_table_beside_selection_and_launch(
    height: int, below: int
) -> None:
    assert lay_out(60, height, 8, below, [PROCESSES]).table >= 3


def test_sixteen_devices_leave_a_launch_line_and_remarks_have_no_room() -> None:
    assert launch_room(24, 16) == (2, 1)


def test_a_very_wide_terminal_has_timelines_below_all_and_links_below_the_table() -> None:
    layout = lay_out(200, 60, 8, 5, [PROCESSES, TIMELINES, JOBS, LINKS])
    assert layout.left.heights == (("links", 10),) and layout.beside is not None and layout.bottom is not None
    assert [name for name, _ in layout.beside.heights] == ["processes", "jobs"]
    assert layout.bottom.width == 200 and lines_of(layout.bottom) >= TIMELINES.size.wants
    hidden = lay_out(200, 60, 8, 5, [PROCESSES, JOBS, LINKS])
    assert hidden.bottom is None and hidden.beside is not None and lines_of(hidden.beside) == 52


def test_panels_that_do_not_grow_keep_their_height_while_the_others_change() -> None:
    few, many = (Part("processes", Size(4, wants), "side", True) for wants in (4, 90))
    assert share(30, [few, JOBS, LINKS])[1:] == share(30, [many, JOBS, LINKS])[1:]
    assert share(30, [few, JOBS, LINKS]) == (("processes", 15), ("jobs", 5), ("links", 10))


def test_what_has_no_room_is_left_out_whole_and_the_most_important_stays() -> None:
    assert share(8, [PROCESSES, JOBS, LINKS]) == (("processes", 4), ("jobs", 4))
    assert share(3, [PROCESSES, JOBS]) == (("jobs", 3),)
    assert share(2, [PROCESSES, JOBS]) == ()
