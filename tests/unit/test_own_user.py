"""The reading user is "you" in every text for people; JSON has the name; the same name on another machine is
another user."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace

import pytest

from gputui.choosing.people import people
from gputui.choosing.queue_outlook import outlook
from gputui.choosing.queue_text import occupied_columns
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import brief, for_document, reason, user_name
from gputui.inventory.claim import Claim
from gputui.inventory.document import to_document
from gputui.inventory.document_reader import from_document
from gputui.inventory.formatting import person
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter
from gputui.system import users
from gputui.system.processes import ProcessTable
from gputui.system.users import own_name
from gputui.tui.app_state import AppState
from gputui.tui.process_rows import rows
from tui.support import box_at
from unit.builders import GIB
from unit.claims_support import EIGHT, Box

ME = "jan"


def ours(own: bool = True) -> Snapshot:
    """A process of ours on GPU 0, a claim of ours on GPU 1, and a ticket of ours in line."""
    idle = box_at("idle")
    process = Process(4242, "compute", ME, 8 * GIB, "python train.py", own=own)
    first = replace(idle.devices[0], processes=(process,), memory_used=8 * GIB)
    claim = Claim(idle.devices[1].key, ME, own=own)
    waiter = Waiter((1, ""), ME, ours=own)
    return replace(idle, devices=(first, *idle.devices[1:]), claims=(claim,), waiters=(waiter,))


@pytest.mark.parametrize("own", [True, False])
def test_all_texts_have_one_word_for_us(own: bool) -> None:
    snapshot, word = ours(own), person(ME, own)
    judged = verdicts(snapshot)
    (user,) = (column for column in occupied_columns(snapshot) if column.name == "USER")
    texts = [user.text(each) for each in outlook(snapshot, judged).occupied]
    texts += [user_name(each) for each in people(snapshot)]
    texts += [row.user for row in rows(AppState({}).with_snapshot(snapshot))]
    assert len(texts) == 5 and set(texts) == {word}
    process, claim = (judged[device.key] for device in snapshot.devices[:2])
    assert word in brief(process, snapshot.time).split() and word in brief(claim, snapshot.time).split()
    assert reason(process, snapshot.time).startswith(word)


def test_json_has_the_name() -> None:
    snapshot = ours()
    text = json.dumps(to_document(snapshot, for_document(verdicts(snapshot), snapshot.time)))
    (device, *_) = json.loads(text)["devices"]
    assert device["processes"][0]["user"] == ME and device["verdict"]["reason"].startswith(ME)


def test_the_same_name_on_another_machine_is_not_us() -> None:
    snapshot = ours()
    there = from_document(to_document(snapshot, for_document(verdicts(snapshot), snapshot.time)))
    assert brief(verdicts(there)[there.devices[0].key], there.time).split()[0] == ME


def test_a_process_is_ours_by_the_user_of_this_machine() -> None:
    table = ProcessTable(host_pids=True)
    assert table.owner(os.getpid()).own and table.owner(os.getpid()).user == own_name()
    assert table.owner(os.getpid()).named(Process(os.getpid(), "compute")).own
    assert os.geteuid() == 0 or not table.owner(1).own


def test_a_list_is_searched_for_the_name_too() -> None:
    snapshot = ours()
    state = AppState({}).with_snapshot(snapshot)
    for words in (f"user {ME}", ME, "user you"):
        assert [row.pid for row in rows(state, filter_text=words) if row.process] == ["4242"]


def test_state_names_us_and_the_script_of_a_living_process(box: Box, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(flush=True)\ninput()\n")
    words = [sys.executable, "train.py"]
    with Popen(words, cwd=tmp_path, stdin=PIPE, stdout=PIPE) as training:
        assert training.stdout is not None and training.stdout.readline()
        snapshot = box.driver.show_box(EIGHT)
        process = Process(training.pid, "compute", None, 20 * GIB)
        used = replace(snapshot.devices[3], memory_used=20 * GIB, memory_free=60 * GIB, processes=(process,))
        box.driver.show(
            replace(snapshot, devices=(*snapshot.devices[:3], used, *snapshot.devices[4:])), EIGHT
        )
        status, out, err = box.call("ls")
        _, told, _ = box.call("ls", "--json")
        training.communicate()
    (row,) = (line for line in out.splitlines() if "train.py" in line)
    assert (status, err) == (0, "") and "you" in row.split() and "python" not in row
    (listed,) = json.loads(told)["devices"][3]["processes"]
    assert listed["user"] == own_name()


def test_no_directory_is_asked_for_the_users_of_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour can claim under 384 of them, and LDAP may take milliseconds to know none of them."""
    table, asked = tmp_path / "subuid", list[int]()
    table.write_text("ana:100000:65536\nbob:1:60000\n")
    monkeypatch.setattr(users, "_SUBORDINATE", str(table))
    monkeypatch.setattr("pwd.getpwuid", lambda uid: asked.append(uid) or SimpleNamespace(pw_name="known"))
    users.user_name.cache_clear()
    try:
        names = [users.user_name(uid) for uid in (99_999, 100_000, 165_535, 165_536, 0, 1000)]
    finally:
        users.user_name.cache_clear()
    assert names == ["known", "100000", "165535", "known", "known", "known"]
    assert asked == [99_999, 165_536, 0, 1000]
