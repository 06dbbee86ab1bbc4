"""Groupings: how a request for a job's groups is parsed, and which numbers of devices fit it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputui.choosing.grouping import ALL_REDUCE, Grouping, GroupingError, parse, parse_request
from table_tests import each_row


@each_row(
    ("text", "job"),
    [
        ("all", ALL_REDUCE),
        ("none", Grouping(independent=True)),
        ("tp=4", Grouping(4)),
        ("pp=2", Grouping(1, 2)),
        ("tp=2,pp=2", Grouping(2, 2)),
        ("pp=2,tp=4", Grouping(4, 2)),
        (" tp=2 , pp=3 ", Grouping(2, 3)),
        ("tp=1", ALL_REDUCE),
        ("tp=02", Grouping(2)),
        ("tp=4096", Grouping(4096)),
    ],
)
def test_a_shape_is_read(text: str, job: Grouping) -> None:
    assert parse(text) == job


@each_row(
    "text",
    [
        *(
            "",
            " ",
            "=2",
            "4",
            "tp",
            "tp=",
            "tp=0",
            "tp=-1",
            "tp=x",
            "tp=2.0",
            "tp=٣",
            "tp=²",
            "tp =2",
            "tp=4097",
        ),
        *("tp=2,", "tp=2,tp=2", "dp=2", "all,tp=2", "none,none"),
    ],
)
def test_what_is_no_shape_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(GroupingError) as refused:
        parse(text)
    assert "\n" not in str(refused.value) and repr(text) in str(refused.value)


def test_a_number_of_thousands_of_digits_is_no_shape() -> None:
    with pytest.raises(GroupingError):
        parse(f"tp={'9' * 5000}")


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_what_is_told_of_a_job_is_read_as_that_job(tensor: int, pipeline: int) -> None:
    job = Grouping(tensor, pipeline)
    assert parse("all" if str(job) == "all-reduce" else str(job)) == job


def test_jobs_are_told_in_the_words_in_which_they_are_asked_for() -> None:
    assert [
        str(job)
        for job in (ALL_REDUCE, Grouping(2), Grouping(1, 4), Grouping(2, 2), Grouping(independent=True))
    ] == [
        "all-reduce",
        "tp=2",
        "pp=4",
        "tp=2,pp=2",
        "independent",
    ]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 200))
def test_a_number_fits_when_it_makes_whole_groups_and_stages(tensor: int, pipeline: int, count: int) -> None:
    assert Grouping(tensor, pipeline).fits(count) == (count % (tensor * pipeline) == 0)


def test_every_number_fits_a_job_without_groups() -> None:
    assert all(ALL_REDUCE.fits(count) and Grouping(independent=True).fits(count) for count in range(1, 20))


@each_row(
    ("text", "count", "job"),
    [
        ("4", 4, ALL_REDUCE),
        (" 4 ", 4, ALL_REDUCE),
        ("8 tp=2 pp=2", 8, Grouping(2, 2)),
        ("8 tp=2,pp=2", 8, Grouping(2, 2)),
        ("8, tp=4", 8, Grouping(4)),
        ("tp=2,pp=2", 4, Grouping(2, 2)),
        ("tp=2 pp=3", 6, Grouping(2, 3)),
        ("3 none", 3, Grouping(independent=True)),
        ("3 all", 3, ALL_REDUCE),
    ],
)
def test_a_number_and_a_job_are_asked_for_in_one_line(text: str, count: int, job: Grouping) -> None:
    assert parse_request(text) == (count, job)


@each_row("text", ["", " ", "0", "-4", "4.5", "²", "four", "4 5", "tp=2 4", "3 tp=2", "tp=0"])
def test_what_asks_for_no_number_of_devices_is_refused(text: str) -> None:
    with pytest.raises(GroupingError) as refused:
        parse_request(text)
    assert "\n" not in str(refused.value)


def test_a_number_that_is_asked_for_is_never_another_one() -> None:
    try:
        count, _ = parse_request("1000000")
    except GroupingError:
        return
    assert count == 1_000_000
