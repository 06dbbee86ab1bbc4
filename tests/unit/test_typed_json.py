"""The typed reader of JSON: a written value reads back, and an invalid one is refused with its place."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputui.inventory import typed_json
from gputui.inventory.light_dataclasses import dataclass, field
from gputui.inventory.typed_json import (
    LAST_MOMENT,
    MOST_NUMBER,
    MOST_TEXT,
    Celsius,
    DocumentError,
    Figure,
    Moment,
    Positive,
    Record,
    Words,
    check,
    few,
    form_of,
    loads,
    parsed,
    within,
)
from table_tests import each_row


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    sizes: tuple[int, ...] = ()
    pair: tuple[Words, float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    kind: Literal["one", "two"]
    count: Positive
    heat: Celsius | None = None
    since: Moment | None = None
    figure: Figure = 0.0
    command: str | None = None
    sure: bool = False
    parts: tuple[Part, ...] = ()
    names: frozenset[str] | None = None
    by_name: dict[str, Part] = field(default_factory=dict)
    anything: object = None
    hidden: int = 5
    detail: int | None = None


WHOLE = Record(
    Whole,
    "kind number=count heat since figure command sure parts names by_name anything",
    later="sure parts names by_name anything",
    details="detail",
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PARTS = st.builds(
    Part,
    TEXT,
    st.lists(st.integers(0, MOST_NUMBER), max_size=3).map(tuple),
    st.none() | st.tuples(TEXT, st.none() | st.floats(0, 1e9)),
)
WHOLES = st.builds(
    Whole,
    kind=st.sampled_from(["one", "two"]),
    count=st.integers(1, MOST_NUMBER),
    heat=st.none() | st.integers(-273, 9999),
    since=st.none() | st.integers(0, 4_000_000_000).map(float),
    figure=st.floats(-1e30, 1e30),
    command=st.none() | TEXT,
    sure=st.booleans(),
    parts=st.lists(PARTS, max_size=3).map(tuple),
    names=st.none() | st.frozensets(TEXT, max_size=3),
    by_name=st.dictionaries(TEXT, PARTS, max_size=2),
    anything=st.none() | st.integers() | st.lists(st.text(max_size=2), max_size=2),
    detail=st.none() | st.integers(0, 9),
)


@given(WHOLES)
def test_what_is_written_comes_back(whole: Whole) -> None:
    written = WHOLE.write(whole, True)
    assert WHOLE.read(loads(json.dumps(written))) == whole
    assert [*WHOLE.write(whole)] == [*written][:-1] and "detail" in written and "hidden" not in written


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(WHOLES, st.data())
def test_one_value_that_is_another_one_is_read_or_refused_in_one_line_with_its_place(
    whole: Whole, data: st.DataObject
) -> None:
    written = WHOLE.write(whole)
    key = data.draw(st.sampled_from([*written]))
    try:
        read = WHOLE.read({**written, key: data.draw(JUNK)})
    except DocumentError as error:
        message = str(error)
        assert message.startswith(key) and "\n" not in message and len(message) < 300
    else:
        assert WHOLE.read(WHOLE.write(read)) == read


RIGHT: dict[str, Any] = {
    **{"kind": "one", "number": 1, "heat": None, "since": None, "figure": 1, "command": None},
    "parts": [{"name": "a", "sizes": [1], "pair": ["x", 1.5]}],
}


@each_row(
    ("value", "place"),
    [
        ([], "expected an object"),
        ({**RIGHT, "kind": "three"}, "kind: expected one or two"),
        ({**RIGHT, "number": 0}, "number: "),
        ({**RIGHT, "number": True}, "number: "),
        ({**RIGHT, "number": 1.0}, "number: "),
        ({**RIGHT, "number": MOST_NUMBER + 1}, "number: "),
        ({**RIGHT, "number": None}, "number: "),
        ({**RIGHT, "heat": -274}, "heat: "),
        ({**RIGHT, "since": "yesterday"}, "since: "),
        ({**RIGHT, "since": 5}, "since: "),
        ({**RIGHT, "figure": float("nan")}, "figure: "),
        ({**RIGHT, "figure": "1"}, "figure: "),
        ({**RIGHT, "command": "x" * (MOST_TEXT + 1)}, "command: "),
        ({**RIGHT, "command": "\ud800"}, "command: "),
        ({**RIGHT, "sure": 1}, "sure: "),
        ({**RIGHT, "parts": {}}, "parts: "),
        ({**RIGHT, "parts": [RIGHT["parts"][0], {}]}, "parts[1]: 'name' is missing"),
        ({**RIGHT, "parts": [{"name": "a", "sizes": [1, -1]}]}, "parts[0].sizes[1]: "),
        ({**RIGHT, "parts": [{"name": "a", "pair": ["x"]}]}, "parts[0].pair: "),
        ({**RIGHT, "parts": [{"name": "a", "pair": ["x", "y"]}]}, "parts[0].pair[1]: "),
        ({**RIGHT, "names": ["a", 1]}, "names[1]: "),
        ({**RIGHT, "by_name": {"b": {"name": 1}}}, "by_name.b.name: "),
        ({key: value for key, value in RIGHT.items() if key != "heat"}, "'heat' is missing"),
    ],
)
def test_what_cannot_be_is_refused_and_its_place_named(value: Any, place: str) -> None:
    assert WHOLE.read(RIGHT).parts[0].pair == ("x", 1.5)
    with pytest.raises(DocumentError) as refused:
        WHOLE.read(value)
    assert str(refused.value).startswith(place)


def test_a_missing_key_that_came_later_is_the_default_and_an_unknown_key_is_passed_over() -> None:
    read = WHOLE.read({**RIGHT, "hidden": 9, "of the future": {}})
    assert (read.sure, read.by_name, read.hidden, read.detail) == (False, {}, 5, None)


def test_a_class_without_a_record_of_its_own_may_lack_what_has_a_default() -> None:
    assert form_of(Part).read({"name": "a"}) == Part("a")


def test_a_time_means_the_same_on_every_machine() -> None:
    read = form_of(Moment).read
    assert (
        read("1970-01-01T00:00:10") == read("1970-01-01T00:00:10Z") == read("1970-01-01T02:00:10+02:00") == 10
    )
    for late in ("9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z"):
        with pytest.raises(DocumentError):
            read(late)
    assert form_of(Moment).write is not None and LAST_MOMENT > 2**37


def test_words_keep_stray_bytes_and_a_command_shows_them() -> None:
    assert form_of(Words).read("caf\udce9") == "caf\udce9"
    assert form_of(Words).read("w" * (MOST_TEXT + 1))
    with pytest.raises(DocumentError):
        form_of(Words).read("\ud800")
    write = form_of(str).write
    assert write is not None and write("caf\udce9") == "caf\\udce9"


def test_a_list_a_text_and_a_value_can_be_bounded() -> None:
    for kind, right, too_much in (
        (few(int, 2), [1, 2], [1, 2, 3]),
        (Annotated[str, parsed(int)], "5", "five"),
        (Annotated[str, check(str, str.isupper, "capitals")], "A", "a"),
    ):
        assert form_of(kind).read(right) in ((1, 2), 5, "A")
        with pytest.raises(DocumentError):
            form_of(kind).read(too_much)


@each_row("data", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(DocumentError, match="not JSON"):
        loads(data)


def test_a_value_inside_of_objects_is_found_or_its_place_named() -> None:
    assert within({"a": {"b": [1]}}, "a", "b") == [1]
    for wrong, place in (({"a": 1}, "a: "), ({}, "'a' is missing"), ({"a": {}}, "a: 'b' is missing")):
        with pytest.raises(DocumentError) as refused:
            within(wrong, "a", "b")
        assert str(refused.value).startswith(place)


def test_a_thread_that_comes_while_another_one_makes_the_rows_sees_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record, seen = Record(Part), list[int]()

    def form_of_meanwhile(kind: Any) -> Any:
        # Another thread would see these rows now.
        seen.append(1)
        if len(seen) == 2:
            seen.append(len(record.rows))
        return form_of(kind)

    monkeypatch.setattr(typed_json, "form_of", form_of_meanwhile)
    assert len(record.rows) == len(record.rows) == 3
    assert 3 in seen


def test_a_key_of_a_stranger_s_is_shown_on_one_line_with_nothing_that_moves_a_cursor() -> None:
    with pytest.raises(DocumentError) as refused:
        form_of(dict[str, int]).read({"a\r\x1b[2J": None})
    assert str(refused.value).isprintable()
