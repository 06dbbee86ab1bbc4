"""Signals to processes on devices, sent to real processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from gputui.inventory.process import ANOTHER_NAMESPACE, OWNER_UNKNOWN, Process
from gputui.system.signals import SignalError, send

_WAITS = "import signal, sys; print('on', flush=True); signal.pause()"


@contextmanager
def running(uid: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing, of another user where `uid` is given."""
    more = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    command = [sys.executable, "-c", _WAITS] if uid is None else ["/bin/sh", "-c", "echo on; exec sleep 1000"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, **more)  # type: ignore[call-overload]
    try:
        assert child.stdout.readline() == b"on\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def seen(child: subprocess.Popen[bytes], **facts: object) -> Process:
    """The process as it is in a device's list."""
    there = psutil.Process(child.pid)
    known = {"user": there.username(), "started": there.create_time(), "command": "python train.py"}
    return Process(child.pid, "compute", **{**known, **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_to_ones_own_it_is_sent(number: int) -> None:
    with running() as child:
        send(seen(child), number)
        assert child.wait(60) == -number


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_where_the_kernel_has_no_descriptors_of_processes_it_is_sent_all_the_same(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux before 5.3, and containers whose filter of system calls does not know them."""

    def refuse(*_: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with running() as child:
        send(seen(child), signal.SIGTERM)
        assert child.wait(60) == -signal.SIGTERM


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of others")
def test_another_users_is_refused_even_to_root() -> None:
    with running(uid=65534) as child:
        with pytest.raises(SignalError, match=f"pid {child.pid} is .*, not yours"):
            send(seen(child), signal.SIGTERM)
        assert child.poll() is None


@pytest.mark.skipif(os.getuid() == 0, reason="root's process 1 is root's own")
def test_another_users_is_refused() -> None:
    there = psutil.Process(1)
    with pytest.raises(SignalError, match="not yours"):
        send(Process(1, "compute", user="root", started=there.create_time()), signal.SIGTERM)


@pytest.mark.parametrize("note", [ANOTHER_NAMESPACE, OWNER_UNKNOWN])
def test_what_has_a_note_is_refused_with_it(note: str) -> None:
    with running() as child:
        with pytest.raises(SignalError, match=f"pid {child.pid}: {note}"):
            send(seen(child, note=note), signal.SIGTERM)
        assert child.poll() is None


@pytest.mark.parametrize("off", [None, 1.0, -3600.0])
def test_a_pid_that_is_another_process_by_now_is_refused(off: float | None) -> None:
    with running() as child:
        started = None if off is None else psutil.Process(child.pid).create_time() + off
        with pytest.raises(SignalError, match="now another process"):
            send(seen(child, started=started), signal.SIGTERM)
        assert child.poll() is None


def test_one_that_has_ended_is_said_to_have() -> None:
    with running() as child:
        process = seen(child)
        child.kill()
        child.wait()
    with pytest.raises(SignalError, match=f"pid {process.pid} has ended"):
        send(process, signal.SIGTERM)


def test_one_that_has_ended_and_was_not_fetched_by_its_parent_has_ended_too() -> None:
    with running() as child:
        process = seen(child)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(SignalError, match=f"pid {process.pid} has ended"):
            send(process, signal.SIGTERM)
