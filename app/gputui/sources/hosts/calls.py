"""One call of gputui on each of several boxes, of which at most eight connect at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gputui.inventory.formatting import MIB
from gputui.sources.hosts.session import LOOK, MOST_MESSAGES, Answer, Session, UnwantedError
from gputui.sources.hosts.ssh import Trouble, Way
from gputui.system.ending_signals import noted_interrupts

T = TypeVar("T")

AT_ONCE = 8
"""Connections that are made at the same time. With more, sshd's MaxStartups (10:30:100) drops some where all
go through one jump host."""
_MOST_THREADS = 64
PATIENCE = 60.0
"""Seconds after the connect timeout within which the remote gputui must answer: starting a driver may take
long.

A login that hangs is given up earlier (`session.LOGIN_WITHIN`).
"""
MOST_ANSWER = 4 * MIB
"""The most bytes of an answer: a job in the list of a box has 900."""
_SLOTS = threading.BoundedSemaphore(AT_ONCE)


def connect(
    alias: str, words: Sequence[str], way: Way, unwanted: threading.Event | None = None, **options: Any
) -> Session:
    """Return a session, once fewer than eight are still connecting. `options` are those of Session.

    Raise the errors of Session, and UnwantedError when `unwanted` is set meanwhile.
    """
    while not _SLOTS.acquire(timeout=LOOK if unwanted else None):
        if unwanted is not None and unwanted.is_set():
            raise UnwantedError
    try:
        return Session(alias, words, way, connected=_SLOTS.release, **options)
    except BaseException:
        _SLOTS.release()
        raise


def ask(
    alias: str,
    words: Sequence[str],
    way: Way,
    views: bool = False,
    patience: float = PATIENCE,
    apart: bool = False,
    unwanted: threading.Event | None = None,
    most: int = MOST_ANSWER,
) -> Answer:
    """Return the answer of one box; it includes any failure of the connection, and more than `most` bytes.

    If the remote gputui is too old for the call, a copy of this one is sent and runs it. `views` is that of
    `remote_script.command`, `apart` is Session's. Raise ValueError for words that cannot be sent, and
    UnwantedError soon after `unwanted` is set: the connection has been closed then.
    """

    options = {"tied": True, "views": views, "apart": apart, "watch": unwanted}

    def asked(own: bool) -> Answer:
        try:
            session = connect(alias, words, way, unwanted, own=own, most_messages=MOST_MESSAGES, **options)
        except OSError as error:
            return cannot_start(alias, error)
        return _heard(session, time.monotonic() + way.timeout + patience, most)

    answer = asked(own=False)
    return asked(own=True) if answer.too_old else answer


def cannot_start(alias: str, error: OSError) -> Answer:
    """Return the answer for a box where the local `ssh` cannot be started."""
    return Answer(alias, None, b"", "", Trouble("failed", f"ssh cannot be started: {error.strerror}"))


def _heard(session: Session, deadline: float, most: int) -> Answer:
    out = bytearray()
    trouble: Trouble | None = None
    while trouble is None:
        data = session.receive(max(0.0, deadline - time.monotonic()))
        if data is None:
            break
        out += data
        if len(out) > most:
            trouble = Trouble("failed", "its answer is too long")
        elif time.monotonic() >= deadline:
            trouble = Trouble("unreachable", "gputui there does not answer in time")
    session.close() if trouble else session.finish()
    return session.answer(bytes(out), trouble)


def of_each(
    boxes: Sequence[str], work: Callable[[str], T], unwanted: threading.Event | None = None
) -> list[T]:
    """Return the result of `work` for each box, in their order.

    `work` connects by `connect` or `ask`, and so to eight boxes at a time; a box that has connected and does
    not answer delays no other box. Ctrl-C, or an exception of a `work`, sets `unwanted`; it is raised when
    each `work` has ended.
    """
    if len(boxes) == 1:
        return [work(boxes[0])]
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    with noted_interrupts() as interrupted, ThreadPoolExecutor(min(_MOST_THREADS, len(boxes) or 1)) as pool:
        asked = [pool.submit(work, box) for box in boxes]
        try:
            while not interrupted:
                done, left = wait(asked, LOOK, FIRST_EXCEPTION)
                if failed := next(filter(None, (each.exception() for each in done)), None):
                    raise failed
                if not left:
                    return [each.result() for each in asked]
            raise KeyboardInterrupt
        except BaseException:
            if unwanted is not None:
                unwanted.set()
            raise
