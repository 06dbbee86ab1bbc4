"""A script in a foreign interpreter: bounded, and ended in time with all its children."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from gputui.inventory.typed_json import DocumentError
from gputui.system import child_process as child
from gputui.system.child_process import run
from messages import numbers
from unit.jobs_support import until

PYTHON = (sys.executable, "-S", "-E")
DEADLINE = 120.0


def gone(pid: int) -> bool:
    """Whether the process has ended or ends soon; a zombie counts as ended."""

    def ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    until(ended)
    return True


def test_a_child_has_the_environment_and_the_directory_that_it_was_given(tmp_path: Path) -> None:
    code = (
        "import os; print(os.getcwd(), os.environ['X'], os.environ.get('HOME'), os.getsid(0) == os.getpid())"
    )
    ended = run((*PYTHON, "-c", code), {"X": "1"}, str(tmp_path))
    assert (ended.status, ended.output, ended.trouble) == (0, f"{tmp_path} 1 None True\n", None)


def test_of_much_output_the_end_is_kept_and_nothing_waits_for_it() -> None:
    code = "import sys; sys.stdout.write('x' * 5_000_000); sys.stderr.write('\\nthe reason\\n'); sys.exit(3)"
    ended = run((*PYTHON, "-c", code), {})
    assert (ended.status, ended.last_line) == (3, "the reason")
    assert len(ended.output) <= 16 * 1024


def test_of_stdout_that_is_kept_in_full_nothing_is_lost_and_of_stderr_the_end_is_kept() -> None:
    code = (
        "import sys; sys.stdout.write('x' * 100_000); sys.stderr.write('y' * 1_000_000);"
        "sys.stderr.write('the reason')"
    )
    ended = run((*PYTHON, "-c", code), {}, most=100_000)
    assert (ended.status, ended.trouble, ended.output) == (0, None, "x" * 100_000)
    assert ended.errors.endswith("the reason") and len(ended.errors) <= 16 * 1024


def test_a_child_that_prints_more_than_it_may_is_ended() -> None:
    ended = run((*PYTHON, "-c", "while True: print('x' * 1000)"), {}, most=10_000)
    assert ended.status is None and ended.trouble == "it prints too much"


def test_a_child_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "inner = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)']);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(inner.pid)); signal.pause()"
    )
    # On a busy machine it may be ended before it has started the other: then it gets more time.
    for seconds in (1, 4, 16):
        ended = run((*PYTHON, "-c", code), {}, seconds=seconds)
        assert ended.status is None and ended.trouble is not None and numbers(ended.trouble) == [seconds]
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            break
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_child_is_cancelled_from_another_thread() -> None:
    cancelled = threading.Event()
    answers: list[child.Ended] = []
    words = (*PYTHON, "-c", "import time; time.sleep(600)")
    thread = threading.Thread(target=lambda: answers.append(run(words, {}, cancelled=cancelled)))
    thread.start()
    cancelled.set()
    thread.join(DEADLINE)
    assert [ended.trouble for ended in answers] == ["cancelled"]


def test_what_a_child_leaves_behind_neither_keeps_us_waiting_nor_lives_on(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys;"
        "inner = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)']);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(inner.pid))"
    )
    assert run((*PYTHON, "-c", code), {}).status == 0
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("argv", [("/no/such/python",), ("/",), ("a\0b",)])
def test_what_cannot_be_started_is_said(argv: tuple[str, ...]) -> None:
    ended = run(argv, {})
    assert ended.status is None and ended.trouble and "cannot be started" in ended.trouble


def test_a_directory_that_is_not_there_is_said() -> None:
    ended = run((*PYTHON, "-c", ""), {}, "/no/such/place")
    assert ended.trouble and "/no/such/place" in ended.trouble


def test_an_answer_that_is_too_long_missing_or_no_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "0.json"
    for text, reason in ((None, "no answer"), ("{", "not JSON"), ("[" * 100_000, "not JSON")):
        if text is not None:
            file.write_text(text)
        with pytest.raises(DocumentError, match=reason):
            child.read_answer(file)
    file.write_text(json.dumps("x" * child.MOST_ANSWER))
    with pytest.raises(DocumentError, match="bytes"):
        child.read_answer(file)


def test_answers_are_for_us_alone_and_gone_afterwards() -> None:
    with child.answers() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "0.json").write_text("{}")
    assert not folder.exists()
    assert os.sep in str(folder)
