"""The glance: the row of a device says its state as a whole, to every eye, and nothing moves meanwhile."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from gputui.choosing.rules import Rules
from gputui.choosing.verdict import GLYPHS
from gputui.inventory.snapshot import Snapshot
from gputui.launching.launch_options import LaunchOptions
from gputui.tui.app_state import AppState
from gputui.tui.styles import LOOKS, look
from gputui.tui.theme import ANSI, DARK, LIGHT, THEMES
from gputui.tui.views.first_frame import frame
from gputui.tui.views.table import columns_of, row, state_of
from gputui.tui.widgets.lines import Lines
from table_tests import each_row, quick_first
from tui.support import OPENED, Session, StillSource, box_at, session
from unit.builders import GIB, box, busy, gpu, job

STATES = ("free", "mine", "busy", "idle")


def luminance(color: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [each / 255 for each in Color.parse(color).rgb]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
def test_states_differ_in_luminance_and_each_can_be_read(theme: object) -> None:
    colors = {state: theme.variables[state] for state in STATES}  # type: ignore[attr-defined]
    assert all(contrast(color, theme.background) >= 4.5 for color in colors.values())  # type: ignore[attr-defined]
    for one, other in combinations(colors.values(), 2):
        apart = abs(Color.parse(one).hsl.h - Color.parse(other).hsl.h)
        assert contrast(one, other) >= 1.25 and min(apart, 1 - apart) >= 0.06, (one, other)
    # A dark brown on white looks like plain text.
    assert (max(Color.parse(colors["idle"]).rgb) - min(Color.parse(colors["idle"]).rgb)) / 255 >= 0.5


def watched(seconds: float, load: int | None = 0) -> AppState:
    """A box after so many seconds: bo holds GPU 0, by default without using it, and GPU 1 is free."""
    bo = job(7, user="bo", memory=8 * GIB, started=0.0)
    first = replace(busy(gpu(0), bo), utilization=load)
    state = AppState({}, LaunchOptions(("true",)), rules=Rules(idle=60))
    for now in range(1000, 1001 + int(seconds), 30):
        state = state.with_snapshot(replace(box(first, gpu(1)), time=float(now)))
    return state


def test_who_holds_a_device_without_using_it_is_named() -> None:
    assert "idle" not in state_of(watched(30), watched(30).box.devices[0])[1]
    state = watched(90)
    sign, words, tone = state_of(state, state.box.devices[0])
    assert (sign, words, tone) == (GLYPHS["idle"], "bo train.py, idle ≥1m", "idle")
    selected, _ = state.toggle(state.box.devices[0])
    for width, told in ((120, "bo train.py, idle ≥1m"), (44, "bo idle ≥1m")):
        columns = columns_of(state, width)
        line = "".join(text for text, _ in row(state, state.box.devices[0], columns, width))
        assert f"{GLYPHS['idle']} {told} " in f"{line} ", "the program needs room"
    assert selected.warnings[0] == "GPU 0 is bo's, unused ≥1m: ask bo"
    assert state_of(state, state.box.devices[1])[2] == "free"
    assert state.outlook.occupied[0].hoarded


def test_the_tone_says_at_once_that_a_device_is_not_used_and_the_word_after_a_while() -> None:
    resting, working, unknown = watched(0), watched(0, 60), watched(0, None)
    told = [state_of(each, each.box.devices[0]) for each in (resting, working, unknown)]
    assert [words for _, words, _ in told] == [told[0][1]] * 3
    assert [tone for *_, tone in told] == ["busy-low", "busy", "busy"]
    # Its bar and its numbers are as quiet.
    spans = row(resting, resting.box.devices[0], columns_of(resting, 100), 100)
    assert "busy" not in {style for _, style in spans}


def test_a_row_has_the_tone_of_its_state_as_a_whole() -> None:
    state = watched(90)
    for device in state.box.devices:
        tone = state_of(state, device)[2]
        spans = [
            (text, style) for text, style in row(state, device, columns_of(state, 100), 100) if text.strip()
        ]
        assert [style.split("-")[0] for _, style in spans].count(tone) >= 4
        # The length of a bar is the load; nothing in use calls for no attention.
        assert {style.split("-")[0] for text, style in spans if set(text) & set("█▏▎▍▌▋▊▉")} <= {tone}
        assert [style for text, style in spans if text.strip() == "0%"] == ["dim"] * 2


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
def test_the_numbers_of_a_busy_device_are_quieter_than_a_free_one_and_can_be_read(theme: Theme) -> None:
    state = watched(0, 60)
    spans = row(state, state.box.devices[0], columns_of(state, 100), 100)
    told = {style for text, style in spans if GLYPHS["busy"] in text or "bo" in text}
    quiet = {style for text, style in spans if text.strip().isdigit() and style != "dim"}
    assert told == {"busy"} and quiet == {"busy-quiet"}
    quieter, busy_, free = (shade(name, theme) for name in ("busy-quiet", "busy", "free"))
    assert (
        Color.parse(quieter).hsl.s < Color.parse(free).hsl.s
        and Color.parse(quieter).hsl.s < Color.parse(busy_).hsl.s / 1.5
    )
    assert contrast(quieter, theme.background) >= 4.5 and contrast(quieter, free) >= 1.25


def shade(name: str, theme: Theme) -> str:
    color = look(name, theme.to_color_system().generate() | theme.variables).color
    assert color is not None and color.triplet is not None
    return color.triplet.hex


def test_a_bar_and_its_number_are_as_strong_as_the_load_in_the_hue_of_the_state() -> None:
    styles = {}
    for percent in (0, 5, 29, 30, 55, 80, 81, 100):
        device = replace(busy(gpu(0)), utilization=percent)
        state = AppState({}).with_snapshot(box(device))
        spans = row(state, device, columns_of(state, 100), 100)
        (number,) = {style for text, style in spans if text.strip() == f"{percent}%"}
        place = next(n for n, (text, _) in enumerate(spans) if text.strip() == f"{percent}%")
        assert not percent or number == spans[place - 2][1], "the bar is as strong as its number"
        styles[percent] = number
    low, middle, high = "busy-low", "busy", "busy-high"
    assert [*styles.values()] == ["dim", low, low, middle, middle, middle, high, high]


@each_row("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
@each_row("state", STATES)
def test_three_strengths_of_a_state_can_be_told_apart_and_read(state: str, theme: Theme) -> None:
    low, middle, high = (Color.parse(shade(f"{state}{level}", theme)) for level in ("-low", "", "-high"))
    assert all(contrast(each.hex, theme.background) >= 4.5 for each in (low, middle, high))
    assert low.hsl.s < middle.hsl.s / 1.4 and contrast(middle.hex, high.hex) >= 1.15
    apart = [abs(each.hsl.h - middle.hsl.h) for each in (low, high)]
    assert all(min(each, 1 - each) < 0.15 for each in apart), "the hue stays that of the state"


def test_without_shades_of_colours_a_low_load_can_be_read_and_a_high_one_is_bold() -> None:
    for theme, colored in ((ANSI, True), (ANSI, False), (DARK, False), (LIGHT, False)):
        variables = theme.to_color_system().generate() | theme.variables
        low, middle, high = (look(f"busy{level}", variables, colored) for level in ("-low", "", "-high"))
        assert low == middle == look("busy-quiet", variables, colored)
        assert high == middle + Style(bold=True)


@each_row("theme", THEMES, ids=lambda theme: theme.name)
def test_no_text_is_faint_in_the_terminals_colours_or_without_any(theme: Theme) -> None:
    variables = theme.to_color_system().generate() | theme.variables
    for name, level, colored in product(LOOKS, ("", "-low", "-high", "-quiet"), (True, False)):
        style = look(f"{name}{level}", variables, colored)
        assert not style.dim, name
        if not colored and theme is not ANSI and LOOKS[name].color not in ("", "background", "rest"):
            assert style.color is not None and style.color.triplet is not None
            gray = Color.parse(style.color.triplet.hex).monochrome.hex
            background = Color.parse(theme.background).monochrome.hex
            assert contrast(gray, background) >= 4.5, name
    assert look("idle", variables, colored=False).bold
    # Plain blue on black cannot be read on most terminals.
    assert all(variables.get(each.color) != "ansi_blue" for each in LOOKS.values())


async def test_without_colours_a_terminal_of_sixteen_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had black text on black."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with session(environ={"TERM": "xterm"}) as s:
        strips = s.app.screen._compositor.render_strips()
        styles = [style for strip in strips for _, style, _ in strip if style is not None]
        colors = {color for style in styles for color in (style.color, style.bgcolor) if color is not None}
        assert styles and all(color.is_default for color in colors)


@each_row("theme", THEMES, ids=lambda theme: theme.name)
def test_a_load_has_the_colour_of_no_state_and_a_device_in_use_not_that_of_an_error(theme: Theme) -> None:
    def color(name: str) -> str:
        variable = LOOKS[name].color
        return theme.variables.get(variable) or str(getattr(theme, variable))

    assert color("load") not in {color(state) for state in (*GLYPHS, "mine")}
    assert color("busy") != theme.error


# A film of a minute

SIZES = [(80, 24), (130, 40), (60, 15), (100, 30), (200, 60)]
_RULE = re.compile(r"─ ([a-z][^─]*) ─")


def picture(s: Session) -> list[str]:
    return [strip.text for strip in s.app.screen._compositor.render_strips()]


def places(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """Where the heading of each part is, and the heading of the table."""
    found = [
        (y, match.start(), re.sub(r"[\d.]+[A-Za-z]*", "0", match[1]).split(":")[0])
        for y, line in enumerate(lines)
        for match in _RULE.finditer(line)
    ]
    heading = next((y, 0, line[:70]) for y, line in enumerate(lines) if " # " in line or "STATE" in line)
    return [*found, heading]


def steady(name: str, elapsed: float) -> Snapshot:
    """A box on which the figures of the devices change, and nobody comes or goes."""
    first, now = box_at(name), box_at(name, elapsed)
    later = {device.key: device for device in now.devices}
    devices = tuple(
        replace(
            device,
            utilization=later[device.key].utilization if device.processes else device.utilization,
            temperature=later[device.key].temperature,
            power=later[device.key].power,
        )
        for device in first.devices
    )
    return replace(first, devices=devices, time=OPENED + elapsed, ticks=elapsed)


@pytest.mark.parametrize("size", quick_first(SIZES, 2), ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", ["shared", pytest.param("idle", marks=pytest.mark.thorough)])
async def test_nothing_moves_for_a_minute(name: str, size: tuple[int, int]) -> None:
    async with session(steady(name, 0), size=size, interval=1000) as s:
        source = s.source
        assert isinstance(source, StillSource)
        first = None
        for second in range(61):
            app_state = s.main.app_state.with_snapshot(steady(name, float(second)))
            app_state = replace(app_state, timelines=s.main.timelines.after(app_state.box))
            s.main.set_app_state(app_state)
            await s.settle()
            lines = picture(s)
            assert len(lines) == size[1] and lines[-1].rstrip().endswith("? help"), "the keys are covered"
            now = places(lines)
            # The first frame has no past yet; a box that is read has all its parts at the second reading.
            first = first if second > 1 else now
            assert now == first, f"second {second}"
            assert all(widget.region.right <= size[0] for widget in s.main.query(Lines) if widget.display)


async def moments(s: Session, seconds: Sequence[int]) -> AsyncIterator[str]:
    """Show the demo box as it is in these seconds, on which people come and go."""
    for second in seconds:
        app_state = s.main.app_state.with_snapshot(replace(box_at("shared", second), ticks=float(second)))
        s.main.set_app_state(replace(app_state, timelines=s.main.timelines.after(app_state.box)))
        await s.settle()
        yield f"second {second}"


KEYS = ("b", "b", "escape", "0", "2", "6", "escape", "D", "escape", "t", "escape", "e", "escape", "J", "x")


@pytest.mark.parametrize("size", quick_first(SIZES, 2), ids=lambda size: f"{size[0]}x{size[1]}")
async def test_no_key_and_nobody_who_comes_or_goes_moves_anything(size: tuple[int, int]) -> None:
    async with session(size=size, interval=1000) as s:
        await s.until(lambda: s.main.app_state.timelines)
        await s.settle()
        first = kept(s)
        for number, key in enumerate(KEYS):
            await s.press(key)
            if s.app.screen is s.main:
                async for when in moments(s, range(5 * number, 5 * number + 5)):
                    assert kept(s) == first, f"{key}, {when}"


def kept(s: Session) -> list[tuple[int, int, str]]:
    """What must keep its place: of the heading of the table, its columns."""
    found = [(y, x, words.split("  ▲")[0].split("  ▼")[0].rstrip()) for y, x, words in places(picture(s))]
    return [each for each in found if not each[2].startswith(VARYING) and each[2] != "p"]


VARYING = ("log of", "last ", "the demo", "GPU", "y copies")
"""Headings within a panel, and words at the end of a heading."""


@pytest.mark.parametrize("size", SIZES[3:], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("command", [(), ("python", "train.py", *["--option=value"] * 10)])
async def test_the_first_frame_has_everything_in_its_place(
    size: tuple[int, int], command: tuple[str, ...]
) -> None:
    async with session(size=size, command=command, interval=1000) as s:
        await s.press("0", "2")
        then = places(picture(s))
        first = _LOOKS.sub("", frame(s.main.app_state.clear(), *size)).split("\r\n")
        headings = {each for each in then if each[2] in ("selected", "launch") or "STATE" in each[2]}
        assert headings <= {*places(first)} and len(headings) >= 2


_LOOKS = re.compile(r"\x1b\[[0-9;]*m")


PAGES = ("D", "p", "t", "right", "@people", "@queue", "@usage", "@nodes", "@settings")
"""What opens the pages that follow the box or the clock."""

_WORD = re.compile(r"(?<!\S)[A-Za-z]{2,}:?(?!\S)")


def words(lines: Sequence[str]) -> list[list[tuple[int, str]]]:
    """The words of each line and their places, without the figures, which may change: "0% 5m", too."""
    return [
        [(match.start(), match[0]) for match in _WORD.finditer(line) if match[0] not in ("for", "now")]
        for line in lines
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("size", quick_first(SIZES, 2), ids=lambda size: f"{size[0]}x{size[1]}")
async def test_no_page_moves_or_blinks_for_a_minute(size: tuple[int, int]) -> None:
    async with session(steady("shared", 0), size=size, interval=1000) as s:
        for number, page in enumerate(PAGES):
            # (This machine may have no other nodes; a demo has some.)
            s.main.set_app_state(replace(s.main.app_state, label="demo shared" if page == "@nodes" else ""))
            await s.press(page)
            if page == "@nodes":
                await s.until(lambda: "connecting" not in "".join(picture(s)))
            first = None
            for second in (0, 1, 2, 3, 15, 30, 45, 59, 60):
                # More than 15 seconds without a reading would be a gap in the timelines.
                elapsed = 61.0 * (number + 1) + second
                app_state = s.main.app_state.with_snapshot(steady("shared", elapsed))
                app_state = replace(app_state, timelines=s.main.timelines.after(app_state.box))
                s.main.set_app_state(app_state)
                s.app.screen.draw()  # type: ignore[attr-defined]
                await s.settle()
                lines = picture(s)
                assert lines[-1].rstrip().endswith("? help"), f"{page}: the keys are covered"
                first = first or words(lines)
                assert words(lines) == first, f"{page}, second {second}"
            await s.press("escape")


async def test_the_cursor_begins_on_the_first_free_device() -> None:
    async with session("shared", at_first_row=False) as s:
        current = s.main.app_state.current
        assert current is not None and current.index == 4
        await s.press("space")
        assert s.selected == ["4"]


async def test_on_a_full_box_the_cursor_begins_on_the_first_row() -> None:
    async with session(box(busy(gpu(0), job(7)), busy(gpu(1), job(8))), at_first_row=False) as s:
        assert s.main.app_state.cursor == gpu(0).key


async def test_the_weakest_link_is_told_once() -> None:
    async with session("dgx-h100", size=(130, 40)) as s:
        await s.press("b", "b")
        assert "weakest link" in " ".join(s.texts("#selection")) and "NV18" in s.main.message
        assert "weakest link" not in s.main.message


async def test_a_long_command_is_one_line_of_its_panel() -> None:
    async with session("shared", size=(160, 40)) as s:
        lines = s.texts("#history")
        first = next(n for n, line in enumerate(lines) if " COMMAND" in line) + 1
        assert [line.split()[0].lstrip("◔") for line in lines[first : first + 4]] == ["6", "1", "0", "3"]
