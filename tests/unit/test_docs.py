"""The pages for users match the program: keys, options, states, settings, examples and links."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from gputui.allocating.settings import ScreenSettings, settings
from gputui.choosing.verdict import GLYPHS
from gputui.cli.completion import whole_parser
from gputui.cli.subcommands import SUBCOMMANDS
from gputui.launching.exports import FORMS
from gputui.sources.simulated.boxes import BOXES
from gputui.tui.actions import ACTIONS, by_key
from gputui.tui.screen_settings import checked
from table_tests import each_row
from unit.calling import Call

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(DOCS.glob("*.md"))
BY_NAME = each_row("page", PAGES, ids=lambda page: page.name)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next heading of the same level."""
    found = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"{page} has no heading {heading!r}"
    return found[1]


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parsers by subcommand, including nested ones ("jobs log"); "" is the screen."""
    found: dict[str, argparse.ArgumentParser] = {}

    def walk(name: str, parser: argparse.ArgumentParser) -> None:
        found[name] = parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for each, inner in action.choices.items():
                    walk(f"{name} {each}".strip(), inner)

    walk("", whole_parser())
    return found


PARSERS = parsers()


# Keys


def first_cells(text: str) -> set[str]:
    """The text in backquotes in the first column of the tables."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row.split("|")[1])}


_SIGNS = {"⏎": "enter", "?": "question_mark", "↓": "down", "↑": "up", "→": "right", ":": "colon"} | {
    "pgup": "pageup",
    "pgdn": "pagedown",
    "/": "slash",
}


def test_the_table_of_keys_has_the_keys_of_the_main_screen_and_no_other() -> None:
    told = first_cells(section("keys.md", "The main screen"))
    assert {_SIGNS.get(key, key) for key in told} == {*by_key({}), "esc", *"09"}


def test_everything_else_is_told_with_the_words_that_do_it() -> None:
    without = {f":{action.query}" for action in ACTIONS if not action.keys}
    assert first_cells(section("keys.md", "Everything else")) == without


def test_the_name_of_every_action_is_told_for_the_users_own_keys() -> None:
    text = section("keys.md", "Your own keys")
    block = tomllib.loads(re.findall("```toml\n(.*?)```", text, re.DOTALL)[0])["screen"]["keys"]
    assert checked(ScreenSettings(keymap=block)).keymap.keys() == block.keys()
    named = {*re.findall(r"`(\w+)`", _FENCE.sub("", text))} - {"copy"} | {*block}
    assert named == {action.id for action in ACTIONS} - {"copy"}


# The command line

_SHARED = ("Calls", "Which box", "Which devices", "How the command is started")


def options_in(text: str) -> set[str]:
    """The options in backquotes, without other text there ("arg:--lr" is an option of a user's command)."""
    return {
        option
        for quoted in re.findall(r"`([^`]+)`", _FENCE.sub("", text))
        for option in re.findall(r"(?<![\w-])(?<!arg:)--?[a-zA-Z][\w-]*", quoted)
    }


@each_row("name", PARSERS, ids=lambda name: name or "screen")
def test_every_option_and_choice_is_on_the_page_of_the_command_line(name: str) -> None:
    places = list(_SHARED)
    subcommand = name.partition(" ")[0]
    own = f"`gputui {subcommand}`"
    page = (DOCS / "command-line.md").read_text()
    if f"## {own}\n" in page:
        places.append(own)
    if subcommand in ("compare", "each"):
        places.append("What `compare` and `each` take")
    text = "".join(section("command-line.md", place) for place in places)
    there, words = options_in(text), set(re.findall(r"[\w-]+", text))
    assert f"`gputui {name}".rstrip() in page
    public = {action.dest for action in PARSERS[name]._actions if action.help != argparse.SUPPRESS}
    for action in PARSERS[name]._actions:
        if action.dest not in public:
            continue
        assert set(action.option_strings) <= there, action.option_strings
        if action.choices is not None and not isinstance(action, argparse._SubParsersAction):
            assert set(map(str, action.choices)) <= words, action.option_strings


WITH_A_CHAPTER = re.findall(r"^## `gputui (\w+)`$", (DOCS / "command-line.md").read_text(), re.MULTILINE)


@each_row("name", WITH_A_CHAPTER)
def test_the_page_of_the_command_line_has_no_option_that_does_not_exist(name: str) -> None:
    assert name in SUBCOMMANDS
    # A page may name an option of `run` to refer to it.
    real = {
        option
        for each, parser in PARSERS.items()
        if each.partition(" ")[0] in (name, "run")
        for action in parser._actions
        for option in action.option_strings
    }
    assert options_in(section("command-line.md", f"`gputui {name}`")) <= real


def test_every_demo_box_and_every_form_is_told() -> None:
    assert first_cells(section("exports.md", "The forms")) >= set(FORMS)
    boxes = section("command-line.md", "Which box")
    assert all(f"`{name}`" in boxes for name in BOXES)


def calls(page: Path) -> Iterator[str]:
    """The calls of gputui in the examples of a page."""
    for language, block in _FENCE.findall(page.read_text()):
        for line in block.splitlines():
            for call in re.findall(r"(?<![\w./-])gputui (?!:)([^|>)&#]+)", line):
                if language in ("sh", "console") and "…" not in call:
                    yield call.strip()


@BY_NAME
def test_every_example_is_a_call_that_the_program_takes(page: Path) -> None:
    for call in calls(page):
        words = shlex.split(call)
        before = words[: words.index("--")] if "--" in words else words
        PARSERS[""].parse_args(before)


@BY_NAME
def test_an_example_with_its_output_prints_just_that(page: Path, call: Call) -> None:
    """The output includes stdout and stderr; a terminal shows the two in any order."""
    for language, block in _FENCE.findall(page.read_text()):
        if language != "console":
            continue
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            typed, *printed = example.splitlines()
            done = call(*shlex.split(typed)[1:])
            assert sorted([*done.out.splitlines(), *done.err.splitlines()]) == sorted(printed)


# Rules


def test_every_state_is_told_with_its_sign() -> None:
    rows = (DOCS / "rules.md").read_text().splitlines()
    told = [(row.split("|")[1].strip(), row.split("|")[2].strip()) for row in rows if row.count("|") == 4]
    assert [(state, f"`{GLYPHS[state]}`") for state in GLYPHS] == [each for each in told if each[0] in GLYPHS]


def test_the_settings_of_the_page_are_settings(tmp_path: Path) -> None:
    (block,) = [
        text for language, text in _FENCE.findall((DOCS / "rules.md").read_text()) if language == "toml"
    ]
    file = tmp_path / "gputui" / "config.toml"
    file.parent.mkdir()
    file.write_text(block)
    found = settings({"XDG_CONFIG_HOME": str(tmp_path)})
    assert found.rules.never == ("0",) and found.notify


# Links


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@BY_NAME
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", _FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = unquote(link).partition("#")
        target = page.parent / place if place else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_map_of_the_pages_leads_to_each_and_the_readme_to_the_map() -> None:
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "README.md").read_text())
    assert sorted(linked) == sorted(page.name for page in DOCS.glob("*.md") if page.name != "README.md")
    readme = (ROOT / "README.md").read_text()
    assert "](docs/README.md)" in readme and "](docs/verified-on.md)" in readme


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 700


def test_every_test_that_the_page_on_security_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "security.md").read_text()))
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 20 and {name for name in named if f"def {name}(" not in tests} == set()


def test_every_test_file_that_is_named_exists() -> None:
    by_version = (ROOT / ".ci" / "files_by_version").read_text().splitlines()
    page = re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs" / "security.md").read_text())
    named = [line for line in by_version if not line.startswith("#")] + page
    assert named and [name for name in named if not (ROOT / name).is_file()] == []
