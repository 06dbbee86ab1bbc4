"""The devices that jobs claimed against those they use: when the two differ, and where that is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gputui.choosing.claimed_use import ClaimedUse, claimed_uses, differing, labels
from gputui.choosing.people import people
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import brief, claimed_and_runs_on, reason
from gputui.inventory.claim import Claim
from gputui.inventory.snapshot import Snapshot
from gputui.tui.app_state import AppState
from gputui.tui.process_rows import rows
from gputui.tui.views.jobs import unclaimed_uses_of
from table_tests import each_row
from unit.builders import NOW, box, busy, gpu, instance, job, recording
from unit.calling import Call


def claims(*places: int, pids: tuple[int, ...] | None, user: str = "mira", **facts: object) -> list[Claim]:
    """The claims of one job, whose command has the pid 77."""
    since = facts.pop("since", NOW - 3600)
    roots = facts.pop("roots", ((77, 1),))
    return [
        Claim(gpu(place).key, user, since, "python t.py", 77, roots=roots, pids=pids, **facts)  # type: ignore[arg-type]
        for place in places
    ]


def seen(running: dict[int, tuple[int, ...]], *claimed: Claim, count: int = 8) -> Snapshot:
    """A box with processes of these pids on these devices."""
    devices = (
        busy(gpu(n), *(job(pid) for pid in running[n])) if n in running else gpu(n) for n in range(count)
    )
    return replace(box(*devices), claims=claimed)


OUTSIDE = seen({0: (5,), 1: (6,)}, *claims(6, 7, pids=(5, 6), job="m6u5"))
"""A job that claimed 6 and 7, and runs on 0 and 1."""


def _only(snapshot: Snapshot) -> ClaimedUse:
    (use,) = claimed_uses(snapshot)
    return use


def _numbers(snapshot: Snapshot, keys: tuple[str, ...] | None) -> str | None:
    return None if keys is None else ",".join(labels(snapshot, keys))


@each_row(
    ("running", "pids", "used", "told"),
    [
        ({6: (5,), 7: (6,)}, (5, 6), "6,7", ""),
        ({0: (5,), 1: (6,)}, (5, 6), "0,1", "claimed 6,7, runs on 0,1"),
        ({0: (5,), 6: (6,)}, (5, 6), "0,6", "claimed 6,7, runs on 0,6"),
        ({0: (5,), 6: (5,), 7: (5,)}, (5,), "0,6,7", "claimed 6,7, runs on 0,6,7"),
        ({}, (), "", ""),
        ({6: (5,)}, (5,), "6", ""),
        ({0: (8,), 6: (5,), 7: (9,)}, (5,), "6", ""),
        ({0: (8,), 1: (9,)}, (), "", ""),
        ({0: (8,), 1: (9,)}, None, None, ""),
    ],
    ids=[
        "as claimed",
        "elsewhere",
        "partly elsewhere",
        "there and elsewhere",
        "nothing yet",
        "not all yet",
        "others are on the rest",
        "others are elsewhere",
        "unknown",
    ],
)
def test_only_use_of_what_is_not_claimed_is_told(
    running: dict[int, tuple[int, ...]], pids: tuple[int, ...] | None, used: str | None, told: str
) -> None:
    snapshot = seen(running, *claims(7, 6, pids=pids))
    use = _only(snapshot)
    assert _numbers(snapshot, use.claimed) == "6,7" and _numbers(snapshot, use.used) == used
    assert claimed_and_runs_on(use, snapshot) == told
    assert bool(differing(snapshot)) == bool(told)


def test_who_only_draws_there_does_not_use_it() -> None:
    drawing = busy(gpu(0), job(5, kind="graphics"))
    assert not differing(replace(box(drawing, gpu(1)), claims=tuple(claims(1, pids=(5,)))))


def test_an_instance_that_is_used_as_claimed_is_no_use_of_its_gpu() -> None:
    parent = busy(gpu(0, mig=True), job(5))
    part = busy(instance(parent, 1), job(5))
    mine = Claim(part.key, "mira", NOW, pid=77, roots=((77, 1),), pids=(5,))
    snapshot = replace(box(parent, instance(parent, 0), part), claims=(mine,))
    assert not differing(snapshot) and _numbers(snapshot, _only(snapshot).used) == "0:1"
    other = replace(snapshot, claims=(replace(mine, key=snapshot.devices[1].key),))
    assert claimed_and_runs_on(_only(other), other) == "claimed 0:0, runs on 0:1"


def test_a_launch_inside_a_job_that_has_its_own_claim_is_not_the_outer_ones_use() -> None:
    outer = claims(6, pids=(5, 6))
    inner = claims(0, pids=(6,), roots=((88, 2),), since=NOW - 60)
    as_claimed = seen({6: (5,), 0: (6,)}, *outer, *inner)
    assert not differing(as_claimed)
    # If the inner job strays, the difference is reported for both, because its process belongs to both.
    astray = seen({6: (5,), 1: (6,)}, *outer, *inner)
    assert len(differing(astray)) == 2
    # On the outer claim's device, only the inner claim differs: it has not claimed that device itself.
    crossed = seen({6: (5, 6)}, *outer, *inner)
    assert [_numbers(crossed, use.claimed) for use in differing(crossed)] == ["0"]


def test_the_device_of_another_job_is_told_too() -> None:
    other = claims(1, pids=(9,), user="ana", roots=((99, 3),))
    snapshot = seen({1: (5, 9)}, *claims(6, pids=(5,)), *other)
    assert [(use.user, _numbers(snapshot, use.used)) for use in differing(snapshot)] == [("mira", "1")]


_pids = st.sets(st.integers(1, 9)).map(lambda found: tuple(sorted(found)))


@given(
    st.dictionaries(st.integers(0, 7), _pids.filter(bool)),
    st.lists(st.tuples(st.sets(st.integers(0, 7), min_size=1), _pids, st.floats(0, NOW)), max_size=4),
)
def test_what_is_told_is_use_that_no_claim_covers(
    running: dict[int, tuple[int, ...]], jobs: list[tuple[set[int], tuple[int, ...], float]]
) -> None:
    found = [
        claim
        for n, (places, pids, since) in enumerate(jobs)
        for claim in claims(*places, pids=pids, roots=((n + 1, 0),), since=since)
    ]
    snapshot = seen(running, *found)
    on = {gpu(n).key: set(pids) for n, pids in running.items()}
    uses = claimed_uses(snapshot)
    assert len(uses) == len(jobs)
    for use, (places, pids, since) in zip(uses, jobs, strict=True):
        assert set(use.claimed) == {gpu(place).key for place in places}
        assert set(use.outside) == set(use.used or ()) - set(use.claimed)
        assert all(on[key] & set(pids) for key in use.used or ())
        assert {key for key in use.claimed if on.get(key, set()) & set(pids)} <= set(use.used or ())
        for key in on.keys() - set(use.claimed) - set(use.outside):
            covering = [
                set(theirs)
                for others, theirs, later in jobs
                if later >= since and key in {gpu(n).key for n in others}
            ]
            assert on[key] & set(pids) <= set().union(*covering)
        order = [device.key for device in snapshot.devices]
        assert list(use.used or ()) == sorted(use.used or (), key=order.index)
    # The states are the same whether the claims' processes are known or not.
    unknown = replace(snapshot, claims=tuple(replace(claim, pids=None) for claim in found))
    assert [v.state for v in verdicts(snapshot).values()] == [v.state for v in verdicts(unknown).values()]


def test_verdicts_keep_their_states_and_say_it() -> None:
    judged = {d.index: verdicts(OUTSIDE)[d.key] for d in OUTSIDE.devices}
    assert [judged[n].state for n in (0, 1, 2, 6, 7)] == ["busy", "busy", "free", "claimed", "claimed"]
    assert reason(judged[6], NOW).startswith("by mira, 1h ago, until job m6u5 ends, which runs on 0,1")
    assert brief(judged[7], NOW) == "mira, runs on 0,1"
    assert reason(judged[0], NOW).endswith("; its job m6u5 claimed 6,7")
    assert brief(judged[1], NOW) == "mira, claimed 6,7"


def test_beside_somebody_elses_process_it_says_whose_job_it_is() -> None:
    main = job(5, user="ana", memory=99)
    device = replace(gpu(0), memory_used=200, processes=(main, job(6, memory=9)))
    snapshot = replace(OUTSIDE, devices=(device, *OUTSIDE.devices[1:]), claims=tuple(claims(6, pids=(6,))))
    verdict = verdicts(snapshot)[device.key]
    assert reason(verdict, NOW).endswith("; job of mira claimed 6") and "mira claimed 6" in brief(
        verdict, NOW
    )


def test_a_claimed_device_that_this_box_does_not_have_is_called_by_its_key() -> None:
    snapshot = seen({0: (5,)}, *claims(0, 6, pids=(5,)), count=1)
    assert claimed_uses(snapshot)[0].differs is False
    snapshot = seen({0: (5,)}, *claims(6, pids=(5,)), count=1)
    assert claimed_and_runs_on(_only(snapshot), snapshot) == f"claimed {gpu(6).key}, runs on 0"


# The places where it is shown


def test_the_people_say_it() -> None:
    (mira,) = people(OUTSIDE)
    assert [use.job for use in mira.unclaimed_uses] == ["m6u5"]
    heading = rows(AppState({}).with_snapshot(OUTSIDE), form="people")[0]
    assert "job m6u5 claimed 6,7, runs on 0,1" in heading.what


def test_of_two_jobs_of_one_user_each_is_told_for_itself(call: Call, tmp_path: Path) -> None:
    second = claims(3, 4, pids=(9,), roots=((99, 3),), job="k3f9")
    snapshot = seen(
        {0: (5,), 1: (6,), 3: (9,)}, *OUTSIDE.claims, *(replace(claim, pid=99) for claim in second)
    )
    judged = verdicts(snapshot)
    assert "runs on" not in reason(judged[gpu(4).key], NOW) and "runs on" in reason(judged[gpu(6).key], NOW)
    rows = json.loads(call("claims", "--json", "--from", recording(tmp_path, snapshot)).out)["claims"]
    assert [len(row["outside"]) for row in rows] == [0, 0, 2, 2]


def test_recordings_keep_it_and_the_calls_tell_it(call: Call, tmp_path: Path) -> None:
    file = recording(tmp_path, OUTSIDE)
    assert "m6u5 ends, which runs on 0,1" in call("ls", "--from", file).out
    assert "(job m6u5 claimed 6,7, runs on 0,1) python" in call("people", "--from", file).out
    assert call("claims", "--from", file).out.count("(claimed 6,7, runs on 0,1) python t.py") == 2
    (row, _) = json.loads(call("claims", "--json", "--from", file).out)["claims"]
    (unclaimed_use,) = json.loads(call("people", "--json", "--from", file).out)["people"][0]["unclaimed_uses"]
    for found in (row, unclaimed_use):
        assert found["runs_on"] == found["outside"] == [gpu(0).key, gpu(1).key]
        assert found["claimed"] == [gpu(6).key, gpu(7).key] and found["job"] == "m6u5"


def test_what_is_not_known_is_null(call: Call, tmp_path: Path) -> None:
    snapshot = seen({0: (5,)}, *claims(6, pids=None))
    (row,) = json.loads(call("claims", "--json", "--from", recording(tmp_path, snapshot)).out)["claims"]
    assert (row["runs_on"], row["outside"], len(row["claimed"])) == (None, None, 1)


def test_only_our_own_jobs_are_on_the_page_of_jobs() -> None:
    app_state = AppState({}).with_snapshot(OUTSIDE)
    assert unclaimed_uses_of(app_state) == {}
    ours = replace(OUTSIDE, claims=tuple(replace(claim, own=True) for claim in OUTSIDE.claims))
    app_state = AppState({}).with_snapshot(ours)
    assert unclaimed_uses_of(app_state) == {"m6u5": "claimed 6,7, runs on 0,1"}
