"""Confining a process to all files except some, on the kernel that the tests run on."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from confinement import needs_landlock, without_landlock
from gputui.system import landlock

FILE = Path(landlock.__file__)

_CONFINED = """
import json, os, runpy, sys
landlock = runpy.run_path(sys.argv[1])
uid, left_out, code = int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
if uid and os.geteuid() == 0:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
def opens(path, mode="r+b"):
    try:
        open(path, mode).close()
        return 0
    except OSError as error:
        return error.errno
def makes(path, of):
    try:
        os.mknod(path, os.stat(of).st_mode, os.stat(of).st_rdev)
        return 0
    except OSError as error:
        return error.errno
try:
    landlock["confine"](left_out)
except OSError as error:
    print(type(error).__name__, error.errno)
    sys.exit(3)
print(eval(code))
"""


def confined(left_out: list[Path], code: str, uid: int = 0, before: list[str] | None = None) -> str:
    """The value of `code` in a process that cannot open these files; `opens` returns 0 or an errno."""
    import json

    words = [*(before or []), sys.executable, "-I", "-c", _CONFINED, str(FILE), str(uid)]
    done = subprocess.run(
        [*words, json.dumps([str(path) for path in left_out]), code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="gputui-landlock-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def nodes(open_folder: Path) -> list[Path]:
    """Four device files: real ones where the test can make them."""
    folder = open_folder / "dev"
    folder.mkdir()
    folder.chmod(0o755)
    made = [folder / f"nvidia{number}" for number in range(4)]
    for node in made:
        try:
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            node.touch()
        node.chmod(0o666)
    return made


def tried(nodes: list[Path]) -> str:
    return f"[opens(path) for path in {[str(node) for node in nodes]}]"


USERS = [os.geteuid()] if os.geteuid() else [0, 65534]


@needs_landlock
@pytest.mark.parametrize("uid", USERS)
def test_what_is_left_out_cannot_be_opened_and_all_else_can(nodes: list[Path], uid: int) -> None:
    answer = confined([nodes[0], nodes[2]], tried(nodes), uid)
    assert answer == str([errno.EACCES, 0, errno.EACCES, 0])
    files = "[opens('/dev/null'), opens('/etc/passwd', 'rb'), opens('/proc/self/status', 'rb')]"
    assert confined([nodes[0]], files, uid) == "[0, 0, 0]"


@needs_landlock
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_root_makes_no_other_file_of_a_device(nodes: list[Path], tmp_path: Path) -> None:
    for folder in (tmp_path, nodes[0].parent):
        made = folder / "another"
        assert confined([nodes[0]], f"makes({str(made)!r}, {str(nodes[0])!r})") == str(errno.EACCES)
        assert not made.exists()


@needs_landlock
def test_a_link_is_followed(nodes: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "first"
    link.symlink_to(nodes[0])
    (tmp_path / "through").symlink_to(nodes[0].parent)
    assert confined([link], tried([nodes[0], link])) == str([errno.EACCES] * 2)
    through = tmp_path / "through" / "nvidia1"
    assert confined([through], tried([nodes[1], through, nodes[2]])) == str([errno.EACCES, errno.EACCES, 0])


@needs_landlock
def test_children_cannot_open_it_either(nodes: list[Path]) -> None:
    words = ["sh", "-c", f"exec 3<>{nodes[0]}"]
    assert confined([nodes[0]], f"__import__('subprocess').run({words}, stderr=-3).returncode") != "0"
    words = ["sh", "-c", f"exec 3<>{nodes[1]}"]
    assert confined([nodes[0]], f"__import__('subprocess').run({words}, stderr=-3).returncode") == "0"


@needs_landlock
def test_files_move_between_folders_as_before(nodes: list[Path], tmp_path: Path) -> None:
    """Under a ruleset that does not grant it, rename(2) returns EXDEV."""
    for name in ("from", "to"):
        (tmp_path / "work" / name).mkdir(parents=True)
    (tmp_path / "work" / "from" / "a").touch()
    one, other = tmp_path / "work" / "from" / "a", tmp_path / "work" / "to" / "a"
    move = f"os.rename({str(one)!r}, {str(other)!r}), os.link({str(other)!r}, {str(one)!r})"
    assert confined([nodes[0]], move) == "(None, None)"


@needs_landlock
@pytest.mark.parametrize(
    "words",
    [
        ["bash", "-c", "cat <(echo right)"],
        ["sh", "-c", "echo right > /dev/stdout"],
        ["sh", "-c", "cat /dev/stdin <<END\nright\nEND"],
        ["sh", "-c", "f=$(mktemp); echo right > $f; cat $f; rm $f"],
        ["sh", "-c", "echo right > /dev/shm/gputui-$$; cat /dev/shm/gputui-$$; rm /dev/shm/gputui-$$"],
        [sys.executable, "-c", "import pty; m, s = pty.openpty(); print('right')"],
    ],
    ids=["process substitution", "stdout", "here-doc", "temporary", "shm", "pty"],
)
def test_shells_and_programs_work_as_before(words: list[str]) -> None:
    run = f"__import__('subprocess').run({words}, capture_output=True, text=True)"
    assert confined([Path("/dev/nvidia0")], f"{run}.stdout.strip()") == "right"


@needs_landlock
def test_what_is_not_there_is_no_error(nodes: list[Path], tmp_path: Path) -> None:
    gone = [nodes[0].parent / "nvidia9", tmp_path / "nowhere" / "nvidia0"]
    assert confined([*gone, nodes[0]], tried([nodes[0], nodes[1]])) == str([errno.EACCES, 0])


@needs_landlock
def test_a_file_that_vanishes_meanwhile_is_no_error(
    nodes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = landlock._allowed

    def vanishing(left_out: list[bytes]) -> list[tuple[bytes, bool]]:
        found = list(real(left_out))
        nodes[3].unlink()
        return found

    monkeypatch.setattr(landlock, "_allowed", vanishing)
    landlock.in_confined_thread([str(nodes[0])], lambda: None)


@needs_landlock
def test_a_folder_of_thousands_of_entries(nodes: list[Path]) -> None:
    for number in range(3000):
        (nodes[0].parent / f"tty{number}").touch()
    last = nodes[0].parent / "tty2999"
    assert confined([nodes[0]], tried([nodes[0], last])) == str([errno.EACCES, 0])


@needs_landlock
def test_what_is_made_later_beside_it_cannot_be_opened(nodes: list[Path]) -> None:
    late = nodes[0].parent / "late"
    assert confined([nodes[0]], f"opens({str(late)!r}, 'w')") == str(errno.EACCES)


@needs_landlock
def test_confinements_add_up_to_sixteen(nodes: list[Path]) -> None:
    within = f"landlock['confine']([{str(nodes[1])!r}])"
    assert confined([nodes[0]], f"{within} or {tried(nodes)}") == str([errno.EACCES, errno.EACCES, 0, 0])
    more = "[landlock['confine']([]) for _ in range(15)] and 'all'"
    assert confined([nodes[0]], more) == "all"
    last = "[landlock['confine']([]) for _ in range(15)] and landlock['check']()"
    done = subprocess.run(
        [sys.executable, "-I", "-c", _CONFINED, str(FILE), "0", "[]", last],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "16 confinements" in done.stderr


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_a_kernel_without_landlock(nodes: list[Path], number: int) -> None:
    answer = confined([nodes[0]], "'confined'", before=without_landlock(number))
    if answer.startswith("no seccomp"):
        pytest.skip(answer)
    assert answer == f"LandlockError {number}"
    assert landlock.why(number)


def test_the_first_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "_call", lambda *_: 1)
    with pytest.raises(landlock.LandlockError) as refused:
        landlock.check()
    assert refused.value.errno == errno.EPROTONOSUPPORT


@needs_landlock
def test_only_the_thread_and_what_it_starts_are_confined(nodes: list[Path]) -> None:
    words = ["sh", "-c", f"exec 3<>{nodes[0]}"]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(words, stderr=subprocess.DEVNULL)

    assert landlock.in_confined_thread([str(nodes[0])], start).wait() != 0
    assert start().wait() == 0
    nodes[0].open("r+b").close()


@needs_landlock
def test_what_the_thread_raises_is_raised() -> None:
    def interrupted() -> None:
        assert threading.current_thread() is not threading.main_thread()
        raise KeyboardInterrupt(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        landlock.in_confined_thread((), interrupted)
