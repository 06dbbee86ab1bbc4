"""Columns: the side at which they are aligned, and texts of strangers in them."""

from __future__ import annotations

from dataclasses import replace

from gputui.choosing.device_columns import device_columns
from gputui.choosing.queue_outlook import outlook
from gputui.choosing.queue_text import occupied_columns, turn_columns
from gputui.choosing.verdict import GLYPHS, verdicts
from gputui.inventory.claim import Claim
from gputui.inventory.columns import Column, printed
from gputui.inventory.job import Job, JobDevice, PidScope
from gputui.inventory.waiter import Waiter
from gputui.jobs.columns import job_columns
from gputui.sources.slurm import cluster as slurm
from gputui.sources.slurm.places import JOBS, NOTE, PARTITIONS, PLACE, PLACE_FACTS, places_of
from table_tests import each_row
from unit.builders import GIB, NOW, box, gpu, job

STRANGE = "a\x1b[31m\nb\u202ec"
EVERY_COLUMN_OF_JOBS = "id name devices on state status outcome ran ended peak use command title log"


def test_a_column_is_aligned_at_the_side_that_it_names() -> None:
    columns = (
        Column[str]("N", lambda text: str(len(text)), right=True),
        Column[str]("TEXT", lambda text: text),
        Column[str]("SIZE", lambda text: f"{len(text)}G", right=True, least=6),
    )
    assert printed(columns, ["a", "b" * 10]) == [
        " N  TEXT          SIZE",
        " 1  a               1G",
        "10  bbbbbbbbbb     10G",
    ]
    assert printed(columns, ["a"], width=10)[1] == "1  a…"


def test_memory_is_in_gib_and_a_box_that_does_not_answer_has_no_state() -> None:
    snapshot = box(gpu(0, memory_used=3 * GIB, memory_free=77 * GIB), gpu(1, memory_used=None))
    judged = verdicts(snapshot)

    def shown(name: str, live: bool) -> list[str]:
        columns = device_columns(snapshot, judged, lambda verdict, _: verdict.state, live)
        (column,) = (each for each in columns if each.name == name)
        return [column.text(device) for device in snapshot.devices]

    assert shown("MEMORY", live=True) == ["3.0/80.0G", "–"]
    assert "unknown" not in shown("STATE", live=True)[0]
    assert shown("STATE", live=False) == [f"{GLYPHS['unknown']} unknown"] * 2


def test_devices_of_a_job_on_another_box_have_the_labels_of_its_record() -> None:
    here = box(gpu(0), gpu(1))
    on = JobDevice(5, gpu(1).key, "H100"), JobDevice(6, "MIG-01234567-89", None)
    job_here = Job(id="3", devices=on, state="running")
    (devices,) = job_columns("devices", NOW, here)
    assert devices.text(job_here) == "1,MIG-01234"
    assert devices.text(replace(job_here, box="other")) == "5,MIG-01234"


def test_a_job_whose_end_is_not_known_has_no_duration() -> None:
    (ran,) = job_columns("ran", NOW)
    running = Job(id="3", created=NOW - 200, started=NOW - 120, state="running")
    assert ran.text(running) == "2m"
    assert ran.text(replace(running, state="done", ended=NOW - 60)) == "1m"
    assert ran.text(replace(running, state="ended")) == "–"


def test_a_failed_job_is_failed_in_every_list() -> None:
    """The screen has said "status 1" where the command line says "failed"."""
    failed = Job(id="k3f9", state="failed", status=1)
    state, status, page, panel = job_columns("state status outcome short", NOW)
    assert [each.text(failed) for each in (state, status)] == ["failed", "1"]
    assert (page.text(failed), panel.text(failed)) == ("✕ failed, status 1", "✕ failed")
    assert page.text(replace(failed, status=None, signal=9)) == "✕ failed, SIGKILL"
    assert page.text(replace(failed, status=None)) == panel.text(failed)


def texts(columns: tuple[Column[object], ...] | list[Column[object]], rows: object) -> list[str]:
    return [column.text(row) for column in columns for row in rows]  # type: ignore[attr-defined]


@each_row("state", ["running", "failed", "elsewhere"])
def test_texts_of_a_job_are_printable_in_every_column(state: str) -> None:
    strange = Job(
        id="3",
        name=STRANGE,
        argv=("python", STRANGE),
        devices=(JobDevice(0, STRANGE, STRANGE), JobDevice(1, f"MIG-{STRANGE}", STRANGE)),
        scope=PidScope(STRANGE, None, None),
        why=STRANGE if state == "failed" else None,
        created=NOW - 60,
        state=state,
        tail=(STRANGE,),
    )
    columns = job_columns(EVERY_COLUMN_OF_JOBS, NOW)
    for each in (strange, replace(strange, name=None), replace(strange, box="box")):
        assert [text for text in texts(columns, [each]) if not text.isprintable()] == []  # type: ignore[arg-type]


def test_texts_of_a_cluster_are_printable_in_every_column() -> None:
    strange = slurm.Cluster(
        (
            slurm.Node(STRANGE, (STRANGE,), STRANGE, (STRANGE,), (slurm.Gpus(STRANGE, 4),)),
            slurm.Node(STRANGE, ("DOWN",), STRANGE),
        ),
        (slurm.Partition(STRANGE, default=True, limit=STRANGE),),
        (slurm.Job(STRANGE, STRANGE, STRANGE, STRANGE, (STRANGE,), 2, STRANGE, ((STRANGE, (0, 1)),)),),
    )
    columns = (PLACE, *PLACE_FACTS, PARTITIONS, NOTE)
    found = texts(columns, places_of(strange)) + texts(JOBS, strange.jobs)  # type: ignore[arg-type]
    assert [text for text in found if not text.isprintable()] == []


def test_places_of_a_cluster_say_what_is_free_now_and_each_node_its_reason_once() -> None:
    two_types = (slurm.Gpus("h100", 4), slurm.Gpus("l4", 2, used=1))
    cluster = slurm.Cluster(
        (
            slurm.Node("n1", ("IDLE", "DRAIN"), "fan", ("big",), two_types),
            slurm.Node("n2", ("IDLE",), "", ("big", "down"), two_types),
        ),
        (slurm.Partition("down", up=False), slurm.Partition("big", default=True)),
    )
    free, state, _ = PLACE_FACTS
    shown = [tuple(each.text(place) for each in (free, state, NOTE)) for place in places_of(cluster)]
    assert [place.text for place in places_of(cluster)][:2] == ["big", "down"]
    assert shown[:2] == [("up to 5", "up", "default"), ("up to 0", "down", "")]
    assert [note for _, _, note in shown[2:]] == ["fan", "not available", "", ""]
    assert [text for text, _, _ in shown[2:]] == ["0 of 4", "0 of 2", "4 of 4", "1 of 2"]


def test_texts_of_devices_waiters_and_users_are_printable_in_every_column() -> None:
    busy = gpu(0, name=STRANGE, memory_used=GIB, processes=(job(user=STRANGE, command=STRANGE),))
    waiter = Waiter((1, ""), STRANGE, 1, None, NOW - 60, STRANGE, job=STRANGE)
    claim = Claim(busy.key, STRANGE, NOW - 60, STRANGE)
    snapshot = replace(box(busy, gpu(1)), waiters=(waiter,), claims=(claim,))
    judged = verdicts(snapshot)
    line = outlook(snapshot, judged)
    found = texts(device_columns(snapshot, judged, lambda verdict, _: verdict.state), snapshot.devices)  # type: ignore[arg-type]
    found += texts(turn_columns(snapshot), line.turns)  # type: ignore[arg-type]
    found += texts(occupied_columns(snapshot), line.occupied)  # type: ignore[arg-type]
    assert [text for text in found if not text.isprintable()] == []
