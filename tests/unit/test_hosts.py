"""Other boxes over a real ssh: `ls --hosts`, and boxes that cannot be reached."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.choosing.verdict import verdicts
from gputui.cli.ls_text import document_text
from gputui.jobs.box_jobs import jobs_told
from gputui.sources.hosts import calls, channel, sent_core
from gputui.sources.hosts.calls import ask
from gputui.sources.hosts.reading import read
from gputui.sources.hosts.remote_script import in_any_shell
from gputui.sources.hosts.session import Answer
from gputui.sources.hosts.ssh import Trouble, Way
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.timeline.usage import Day, Figures, file_of, folder_of
from messages import numbers
from simnvml import SimulatedNvml
from ssh_boxes import PROGRAMS, SshBoxes, system_programs
from table_tests import each_row
from unit.calling import Call
from unit.jobs_support import until as until_true
from unit.test_json_schema import BOXES_CHECK

pytestmark = pytest.mark.skipif(not PROGRAMS, reason="no sshd, ssh and ssh-keygen")


def shown(nvml: SimulatedNvml, box: str) -> dict[str, str]:
    """The variables that make a simulated driver show this box."""
    nvml.show_box(BOXES[box])
    names = ("LD_LIBRARY_PATH", "SIMNVML_BOX", "SIMNVML_CONTROL", "SIMNVML_COUNTS")
    found = nvml.environment()
    return {name: found[name] for name in names}


def test_a_box_is_listed_as_it_lists_itself(
    boxes: SshBoxes, call: Call, simulated_nvml: SimulatedNvml
) -> None:
    boxes.add("idle", shown(simulated_nvml, "idle"))
    found = call("ls", "--hosts", "idle", "--json").json
    BOXES_CHECK.validate(call("ls", "--hosts", "idle", "--json", "--details").json)
    (entry,) = found["boxes"]
    assert found["schema"] == 1 and (entry["host"], entry["error"]) == ("idle", None)
    assert [device["verdict"]["state"] for device in entry["devices"]] == ["free"] * 2
    assert "idle" in call("ls", "--hosts", "idle").text


@pytest.fixture
def idle(simulated_nvml: SimulatedNvml) -> dict[str, str]:
    return shown(simulated_nvml, "idle")


def fresh(boxes: SshBoxes, name: str) -> str:
    """A name that no box has."""
    taken = {file.stem for file in boxes.folder.glob("*.env")}
    return next(each for number in range(99) if (each := f"{name}{number}") not in taken)


def entry(call: Call, alias: str) -> dict[str, Any]:
    document = call("ls", "--hosts", alias, "--json").json
    BOXES_CHECK.validate(document)
    (found,) = document["boxes"]
    assert isinstance(found, dict)
    return found


def test_boxes_that_cannot_be_reached_say_why_and_leave_the_others(
    boxes: SshBoxes, idle: dict[str, str], call: Call
) -> None:
    boxes.add("well", idle)
    boxes.add_dead("dead")
    boxes.add_changed("changed")
    boxes.add_denied("denied")
    with boxes.add_hung("hung"):
        ended = call("ls", "--hosts", "dead,well,hung,changed,denied,no.such.box.invalid", "--json")
    BOXES_CHECK.validate(json.loads(ended.out))
    found = {each["host"]: each for each in json.loads(ended.out)["boxes"]}
    assert ended.status == 0 and list(found)[1] == "well"
    assert found["well"]["error"] is None and len(found["well"]["devices"]) == 2
    errors = {name: each["error"] for name, each in found.items() if name != "well"}
    assert all("devices" not in found[name] for name in errors)
    assert errors["dead"] == "connection refused"
    assert "host key" in errors["changed"] and "denied" in errors["denied"]
    assert "time" in errors["hung"] and errors["no.such.box.invalid"] == "no such host name"


@pytest.mark.parametrize(
    ("words", "key", "shown"),
    [
        (("claims",), "claims", ""),
        (("queue",), "waiters", ""),
        (("plan", "--parameters", "1B", "-n", "2"), "strategies", "zero1"),
    ],
)
def test_what_each_box_tells_is_merged(
    boxes: SshBoxes, idle: dict[str, str], call: Call, words: tuple[str, ...], key: str, shown: str
) -> None:
    well = fresh(boxes, "merged")
    boxes.add(well, idle)
    boxes.add_dead("dead")
    document = call(*words, "--hosts", f"dead,{well}", "--json").json
    dead, found = document["boxes"]
    assert (document["schema"], dead["host"], found["host"], found["error"]) == (1, "dead", well, None)
    assert dead["error"] and key not in dead and key in found
    ended = call(*words, "--hosts", f"dead,{well}")
    assert ended.status == 0 and well in ended.out and shown in ended.out and dead["error"] in ended.out
    assert call(*words, "--hosts", "dead").status == 3
    call(*words, "--hosts", "dead", "--demo").refused(2)


def day_of(home: Path, user: str, ago: int) -> Path:
    """The file of a day, on which a user of this box had a GPU for two hours."""
    place = folder_of(home / ".local" / "state" / "gputui")
    place.mkdir(parents=True, mode=0o700, exist_ok=True)
    # (At noon: the two hours are of one day, whenever this runs.)
    moment = time.mktime((*time.localtime(time.time() - 86_400 * ago)[:3], 12, 0, 0, 0, 0, -1))
    day = Day(moment - 7200, moment, 7200.0, {"GPU-1": "0"})
    day.count(Figures(held=7200.0), device="GPU-1", user=user, job="")
    file = file_of(place, moment)
    file.write_bytes(day.text())
    return file


def test_the_usage_of_each_box_with_the_days_that_it_has_lost(
    boxes: SshBoxes, idle: dict[str, str], call: Call
) -> None:
    well, torn = fresh(boxes, "used"), fresh(boxes, "torn")
    day_of(boxes.add(well, idle), "mira", 1)
    home = boxes.add(torn, idle)
    day_of(home, "bo", 1)
    lost = day_of(home, "bo", 2)
    lost.write_bytes(lost.read_bytes()[:-9])
    boxes.add_dead("dead")
    words = ("usage", "--hosts", f"{well},dead,{torn}")
    whole, dead, damaged = call(*words, "--json").json["boxes"]
    assert [(row["user"], row["held"]) for row in whole["rows"]] == [("mira", 7200)] and not whole["damaged"]
    assert dead["error"] and "rows" not in dead
    assert [(row["user"], row["held"]) for row in damaged["rows"]] == [("bo", 7200)]
    assert [each["day"] for each in damaged["damaged"]] == [lost.stem]
    told = call(*words)
    assert told.status == 0 and "mira" in told.out and dead["error"] in told.out
    assert lost.stem in told.out.partition(torn)[2] and told.out.count(lost.stem) == 1


@each_row("words", [("claims", "--setup"), ("plan", "1B", "--prove"), ("plan", "1B", "--use", "ddp")])
def test_what_is_for_this_machine_is_asked_of_no_other(call: Call, words: tuple[str, ...]) -> None:
    call(*words, "--hosts", "a").refused(2)


def test_where_no_box_can_be_reached_the_status_says_so(boxes: SshBoxes, call: Call) -> None:
    boxes.add_dead("dead")
    ended = call("ls", "--hosts", "dead", "--json")
    assert ended.status == 3 and json.loads(ended.out)["boxes"][0]["error"]
    alone = call("ls", "--hosts", "dead")
    assert alone.status == 3 and (alone.out + alone.err).count("refused") == 1


@each_row(
    "words",
    [
        ("ls", "--hosts"),
        ("jobs", "--hosts"),
        ("pick", "--hosts"),
        ("run", "--on"),
        ("run", "--hosts"),
        ("queue", "--hosts"),
        ("usage", "--hosts"),
        ("ls", "--details", "--hosts"),
    ],
)
def test_boxes_that_are_separated_by_spaces_are_told_about_commas(call: Call, words: tuple[str, ...]) -> None:
    assert "gpu1,gpu2" in call(*words, "gpu1", "gpu2").refused(2)


@each_row("shell", ["bash", "dash", "fish", "zsh", "tcsh"])
def test_words_arrive_through_any_login_shell(tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}")
    words = [
        "a b",
        "it's",
        '"',
        "$HOME `id`",
        "!x !! %s \\ \\n",
        "two\nlines\n",
        "",
        "ä€",
        "*",
        "-n",
        "\udcff",
    ]
    script = "for w; do printf '%s\\0' \"$w\"; done"
    line = in_any_shell(f"set -- {' '.join(map(shlex.quote, words))}\n{script}")
    said = subprocess.run([program, "-c", line], capture_output=True, check=True, cwd=tmp_path).stdout
    assert said == b"".join(os.fsencode(word) + b"\0" for word in words)


def test_a_box_without_gputui_is_sent_one_once(
    boxes: SshBoxes, idle: dict[str, str], call: Call, no_packages: str
) -> None:
    name = fresh(boxes, "bare")
    home = boxes.add(name, idle, gputui=False, path=no_packages)
    assert len(entry(call, name)["devices"]) == 2
    (core,) = (home / ".cache" / "gputui").iterdir()
    sent = (core / "start.py").stat().st_ino
    assert not (core / "gputui" / "tui").exists()
    assert len(entry(call, name)["devices"]) == 2
    assert (core / "start.py").stat().st_ino == sent


def test_a_copy_that_has_lost_a_file_is_sent_again(
    boxes: SshBoxes, idle: dict[str, str], call: Call, no_packages: str
) -> None:
    name = fresh(boxes, "damaged")
    home = boxes.add(name, idle, gputui=False, path=no_packages)
    core = home / ".cache" / "gputui" / sent_core.digest()
    core.mkdir(parents=True)
    for lost in ("names", "start.py", "gputui/cli/main.py"):
        (core / lost).unlink(missing_ok=True)
        assert len(entry(call, name)["devices"]) == 2
        assert [each.name for each in core.parent.iterdir()] == [core.name]
        assert all((core / each).is_file() for each in (core / "names").read_text().splitlines())


@pytest.mark.parametrize(
    ("place", "planted"),
    [
        *((place, True) for place in ("", ".cache", ".cache/gputui", "core", "core/start.py", "core/gputui")),
        *((place, False) for place in ("", ".cache", ".cache/gputui")),
    ],
)
def test_a_copy_that_others_could_have_put_there_is_named_and_not_run(
    boxes: SshBoxes, idle: dict[str, str], call: Call, no_packages: str, place: str, planted: bool
) -> None:
    """The copy's name is a digest of its content, and so the same for everybody."""
    name = fresh(boxes, "planted")
    home = boxes.add(name, idle, gputui=False, path=no_packages)
    core, ran = home / ".cache" / "gputui" / sent_core.digest(), home / "ran"
    if planted:
        core.mkdir(parents=True)
        zipfile.ZipFile(io.BytesIO(sent_core.zipped())).extractall(core)
        (core / "start.py").write_text(f"open({str(ran)!r}, 'w')")
    else:
        core.parent.mkdir(parents=True)
    changed = home / place.replace("core", str(core))
    changed.chmod(changed.stat().st_mode | 0o002)
    assert repr(str(changed)) in entry_of_failed(call, name)
    assert repr(str(changed)) in call("run", "--on", name, "-n", "1", "--", "true").refused(3)
    assert not ran.exists() and core.exists() == planted
    changed.chmod(0o755)
    assert entry_of_failed(call, name) if planted else len(entry(call, name)["devices"]) == 2


def test_what_is_sent_can_be_changed_by_nobody_else_whatever_the_umask(
    boxes: SshBoxes, idle: dict[str, str], call: Call, no_packages: str
) -> None:
    name = fresh(boxes, "open")
    home = boxes.add(name, idle, gputui=False, path=no_packages, before="umask 0")
    for _ in range(2):
        assert len(entry(call, name)["devices"]) == 2
    made = [*(home / ".cache").rglob("*"), home / ".cache"]
    assert len(made) > 100 and not [
        each for each in made if each.stat().st_mode & 0o077 and "__pycache__" not in str(each)
    ]


@pytest.mark.thorough
def test_copies_that_nothing_uses_any_more_go_when_another_is_sent(
    boxes: SshBoxes, idle: dict[str, str], call: Call, no_packages: str
) -> None:
    name = fresh(boxes, "tidy")
    home = boxes.add(name, idle, gputui=False, path=no_packages)
    cache = home / ".cache" / "gputui"
    ages = {"0" * 16: 31, "1" * 16: 31, "2" * 16: 29, "tmpcutoff": 2, "tmpcoming": 0.5, "notes": 99}
    for each, days in ages.items():
        (cache / each).mkdir(parents=True)
        (cache / each / "start.py").touch()
        for place in (cache / each / "start.py", cache / each):
            os.utime(place, (time.time() - days * 86400,) * 2)
    with subprocess.Popen(["sh", "-c", "read x", str(cache / ("1" * 16))], stdin=subprocess.PIPE) as runs:
        assert len(entry(call, name)["devices"]) == 2
        runs.communicate()
    left = {each.name for each in cache.iterdir()}
    assert left == {"1" * 16, "2" * 16, "tmpcoming", "notes", sent_core.digest()}
    # Starting a copy marks it as in use.
    os.utime(cache / sent_core.digest() / "start.py", (1, 1))
    entry(call, name)
    assert (cache / sent_core.digest() / "start.py").stat().st_mtime > time.time() - 3600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts another user's process")
def test_no_command_line_of_another_user_is_read_where_gputui_is_sent(
    boxes: SshBoxes, idle: dict[str, str], call: Call, no_packages: str
) -> None:
    """The owner may have made it gigabytes long, and could use it to keep a copy there for ever."""
    name = fresh(boxes, "neighbour")
    home = boxes.add(name, idle, gputui=False, path=no_packages)
    old = home / ".cache" / "gputui" / ("3" * 16)
    old.mkdir(parents=True)
    (old / "start.py").touch()
    os.utime(old / "start.py", (1, 1))
    with subprocess.Popen(
        ["sh", "-c", "read x", str(old)], stdin=subprocess.PIPE, user=65534, group=65534, cwd="/"
    ) as neighbour:
        assert len(entry(call, name)["devices"]) == 2
        neighbour.communicate()
    assert not old.exists()


def test_what_is_sent_needs_no_package_and_reads_settings_on_every_python(tmp_path: Path) -> None:
    zipfile.ZipFile(io.BytesIO(sent_core.zipped())).extractall(tmp_path)
    look = "import gputui, pynvml, yaml, tomli; print(tomli.loads('a = 1')['a'], tomli.__file__)"
    said = subprocess.run(
        [sys.executable, "-S", "-c", look], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
    ).stdout.split()
    assert said[0] == "1" and Path(said[1]).is_relative_to(tmp_path)
    assert sent_core.digest() == sent_core.digest.__wrapped__()


def test_what_login_scripts_print_is_no_answer(boxes: SshBoxes, idle: dict[str, str], call: Call) -> None:
    name = fresh(boxes, "noisy")
    boxes.add(name, idle, before="echo 'Welcome!'; echo '{\"schema\": 1}'; printf 'no newline '; echo")
    assert len(entry(call, name)["devices"]) == 2
    boxes.add(f"{name}x", idle, before="head -c 100000 /dev/zero")
    assert entry_of_failed(call, f"{name}x")


def entry_of_failed(call: Call, alias: str) -> str:
    ended = call("ls", "--hosts", alias, "--json")
    assert ended.status == 3
    BOXES_CHECK.validate(json.loads(ended.out))
    return str(json.loads(ended.out)["boxes"][0]["error"])


SMI = """\
0, GPU-11111111-1111, NVIDIA H100, 00000000:1B:00.0, 81559, 10, 81000, 0, 30, 66.05, 700.00, 550.54
1, GPU-22222222-2222, NVIDIA H100, 00000000:1C:00.0, 81559, 10, 81000, [N/A], 30, [N/A], 700.00, 550.54
"""


def test_without_a_python_that_can_nvidia_smi_is_asked_and_nothing_counts_as_free(
    boxes: SshBoxes, call: Call, tmp_path: Path
) -> None:
    name = fresh(boxes, "old")
    home = boxes.add(name, gputui=False, path=system_programs(tmp_path))
    assert "Python" in entry_of_failed(call, name)
    program = home / "bin" / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{SMI}END\n")
    program.chmod(0o755)
    found = entry(call, name)
    assert [device["verdict"]["state"] for device in found["devices"]] == ["unknown"] * 2
    assert found["devices"][1]["utilization"] is None and found["devices"][0]["memory_used"] == 10 * 1024**2
    assert any("Python" in error["message"] for error in found["errors"])


def test_a_python_that_is_too_old_is_none(boxes: SshBoxes, call: Call, tmp_path: Path) -> None:
    name = fresh(boxes, "ancient")
    home = boxes.add(name, gputui=False, path=system_programs(tmp_path))
    for program, text in (
        # This python3 answers 1 to "are you 3.10 or newer?".
        ("python3", 'case "$*" in *version_info*) exit 1;; esac; touch "$HOME/started"'),
        ("nvidia-smi", f"cat <<'END'\n{SMI}END"),
    ):
        (home / "bin" / program).write_text(f"#!/bin/sh\n{text}\n")
        (home / "bin" / program).chmod(0o755)
    assert [device["verdict"]["state"] for device in entry(call, name)["devices"]] == ["unknown"] * 2
    ended = call("run", "--on", name, "-n", "1", "--", "true")
    assert ended.refused(3) and not (home / "started").exists() and not (home / ".cache").exists()


def test_what_gputui_says_there_is_the_reason(boxes: SshBoxes, call: Call, tmp_path: Path) -> None:
    name = fresh(boxes, "driverless")
    boxes.add(name, path=f"{tmp_path}:/usr/bin:/bin")
    assert entry_of_failed(call, name)


@pytest.mark.parametrize(
    "answer", ["nonsense", "{}", '{"schema": 2}', "[" * 100_000, '{"schema": 1, "error": 3}']
)
def test_an_answer_that_is_no_snapshot_is_an_error_of_that_box(
    boxes: SshBoxes, call: Call, answer: str
) -> None:
    name = fresh(boxes, "liar")
    home = boxes.add(name)
    (home / "answer").write_text(answer)
    (home / "bin" / "gputui").write_text('#!/bin/sh\ncat "$HOME/answer"\n')
    assert entry_of_failed(call, name).isprintable()


class Babbles:
    """A connection that always has another byte."""

    left = 1000

    mode = "run"

    def receive(self, _seconds: float) -> bytes:
        self.left -= 1
        assert self.left
        return b"x"

    def close(self) -> None:
        """It is ended."""

    def answer(self, out: bytes = b"", trouble: Trouble | None = None) -> Answer:
        return Answer("babbles", None, out, "", trouble)


def test_who_says_something_all_the_time_is_given_up_as_who_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "connect", lambda *_words, **_options: Babbles())
    answer = ask("babbles", ["ls"], Way(1), patience=-1.0)
    assert answer.trouble is not None and answer.trouble.kind == "unreachable"


def test_so_is_one_that_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "connect", lambda *_words, **_options: Babbles())
    monkeypatch.setattr(channel, "FIRST_WITHIN", -1.0)
    followed = channel.Channel("babbles", Way(1), 1.0)
    assert followed._connected() is False and followed.state.state == "dead"


class SendsInPieces(Babbles):
    """A connection that sends a long line in many pieces, and then ends."""

    left = 1 << 15

    def receive(self, _seconds: float) -> bytes | None:
        self.left -= 1
        return b"x" * 512 if self.left else b"\n" if not self.left else None


def test_a_long_line_in_many_pieces_costs_what_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece was put behind all before it, and all of it was searched: minutes for 16 MiB."""
    monkeypatch.setattr(channel, "connect", lambda *_words, **_options: SendsInPieces())

    def follow() -> None:
        followed = channel.Channel("babbles", Way(1), 1.0)
        assert followed._connected() is False and followed.state.error is not None

    assert_costs(5.0, lambda: cpu_seconds(follow))


def test_text_without_an_end_is_no_answer(boxes: SshBoxes, call: Call) -> None:
    """It was printed: 32 MiB of each box, as one line."""
    name = fresh(boxes, "endless")
    home = boxes.add(name)
    (home / "bin" / "gputui").write_text("#!/bin/sh\nhead -c 2000000 /dev/zero | tr '\\0' x\n")
    ended = call("queue", "--hosts", name)
    assert ended.status == 3 and "too long" in ended.out and len(ended.out) < 1000


@pytest.mark.parametrize("read_it", [
    lambda answer: read(answer.alias, answer.out, "run", 0.0).error,
    lambda answer: jobs_told(answer, 0.0).error,
])  # fmt: skip
def test_an_answer_of_millions_of_values_is_not_read(read_it: Callable[[Answer], str | None]) -> None:
    """They took 850 MiB and seconds in which no key was answered."""
    text = b'{"jobs": [' + b"[]," * 2_000_000 + b"[]]}"
    tracemalloc.start()
    try:
        assert read_it(Answer("far", 0, text, "", None)) is not None
        assert tracemalloc.get_traced_memory()[1] < 2 * len(text)
    finally:
        tracemalloc.stop()


def test_its_text_does_nothing_to_the_terminal(boxes: SshBoxes, call: Call) -> None:
    name = fresh(boxes, "evil")
    home = boxes.add(name)
    (home / "bin" / "gputui").write_text("#!/bin/sh\nprintf '\\033]0;x\\007\\342\\200\\256' >&2; exit 3\n")
    ended = call("ls", "--hosts", name)
    assert ended.status == 3 and "\x1b" not in ended.out + ended.err and ended.out[:-1].isprintable()


@each_row("name", ["-oProxyCommand=id", "", "a b", "a;b", "a:1", "all,x", "anywhere", "$(id)"])
def test_what_ssh_or_a_shell_would_misread_is_no_box(call: Call, name: str) -> None:
    call("ls", f"--hosts={name}").refused(2)


def test_all_are_those_of_the_settings(
    boxes: SshBoxes, idle: dict[str, str], call: Call, tmp_path: Path
) -> None:
    call("ls", "--hosts", "all").refused(2)
    boxes.add("one", idle)
    boxes.add_dead("dead")
    file = tmp_path / "config" / "gputui" / "config.toml"
    file.write_text('[hosts]\nboxes = ["one", "dead"]\nconnect_timeout = 5\n')
    found = call("ls", "--hosts", "all", "--json").json["boxes"]
    assert [(each["host"], each["error"] is None) for each in found] == [("one", True), ("dead", False)]


def test_the_best_set_of_all_boxes_is_picked(
    boxes: SshBoxes, call: Call, tmp_path: Path, nvml_library: Path
) -> None:
    for name in ("idle", "dgx-h100", "rtx3090"):
        folder = tmp_path / name
        folder.mkdir()
        boxes.add(f"pick-{name}", shown(SimulatedNvml(folder, nvml_library), name))
    boxes.add_dead("dead")
    every = "pick-idle,dead,pick-dgx-h100"
    ended = call("pick", "-n", "2", "--hosts", every)
    box, ids = ended.out.split()
    # Two GPUs with an NVLink between them are better than two on a workstation.
    assert (ended.status, box) == (0, "pick-dgx-h100")
    # There is one line for the unreachable box, and none for boxes that only have too few devices.
    (line,) = call("pick", "-n", "3", "--hosts", every).err.splitlines()
    assert "dead" in line and len(line) <= 110
    boxes.add_dead("dead-as-well")
    (line,) = call("pick", "-n", "2", "--hosts", f"{every},dead-as-well").err.splitlines()
    assert "dead" in line and "dead-as-well" in line
    assert "pick-idle" in call("pick", "-n", "3", "--why", "--hosts", every).err
    refused = call("pick", "-n", "9", "--hosts", box)
    assert refused.status == 4 and numbers(refused.err.splitlines()[0].partition(box)[2]) == [9, 8]
    alone = call("pick", "-n", "2", "--hosts", box).line
    assert alone == f"{box} {ids}"
    found = json.loads(call("pick", "-n", "2", f"--hosts={every}", "--format=json", "--ids", "uuid").out)
    assert found["host"] == box and found["ids"] == ",".join(each["uuid"] for each in found["devices"])
    assert call("pick", "-n", "64", "--hosts", every).status == 4
    assert call("pick", "-n", "1", "--hosts", "dead").status == 3
    assert call("pick", "-n", "2", "--group", "tp=3", "--hosts", box).status == 2


@each_row("words", [["--wait"], ["--format", "env"], ["--demo"]])
def test_what_has_no_meaning_for_other_boxes_is_refused(call: Call, words: list[str]) -> None:
    call("pick", "--hosts", "a", *words).refused(2)


# ls --hosts --json --follow


def test_what_is_as_it_was_is_the_same_without_being_read_again() -> None:
    snapshot = at(BOXES["shared"], 1.0, 1_750_000_000.0)
    text = document_text(snapshot, verdicts(snapshot)).encode()
    first = read("a", text, "run", 0.0)
    again = read("a", text, "run", 0.0, first)
    assert again == first and again.snapshot is not None and first.snapshot is not None
    assert again.snapshot.links is first.snapshot.links and again.snapshot.links
    document = json.loads(text)
    document["links"][0][1] = "nonsense"
    changed = read("a", json.dumps(document).encode(), "run", 0.0, first)
    assert changed.snapshot is None and "links" in str(changed.error)
    document = {**json.loads(text), "devices": []}
    assert read("a", json.dumps(document).encode(), "run", 0.0, first).snapshot is None


@each_row("name", ["shared", "a100-mig", "lost", "idle"])
def test_what_has_changed_is_read_as_if_nothing_had_been_read_before(name: str) -> None:
    last = None
    for seconds in range(60, 180, 15):
        snapshot = at(BOXES[name], float(seconds), 1_750_000_000.0 + seconds % 2)
        text = document_text(snapshot, verdicts(snapshot)).encode()
        last = read("a", text, "run", 0.0, last)
        assert last.snapshot is not None and last == read("a", text, "run", 0.0)


@each_row(
    ("key", "value"),
    [("power", True), ("memory_used", False), ("memory_used", -1), ("temperature", "hot"), ("uuid", 7)],
)
def test_what_has_changed_is_read_as_strictly_as_before(key: str, value: object) -> None:
    snapshot = at(BOXES["shared"], 100.0, 1_750_000_000.0)
    text = document_text(snapshot, verdicts(snapshot))
    first = read("a", text.encode(), "run", 0.0)
    document = json.loads(text)
    document["devices"][2][key] = value
    found = read("a", json.dumps(document).encode(), "run", 0.0, first)
    assert found.snapshot is None and f"devices[2].{key}" in str(found.error)


@each_row(
    "place",
    [("devices", 0, "index"), ("devices", 0, "mig"), ("link_weights", 0, 1), ("waiters", 0, "ours")],
)
def test_a_truth_is_no_number_also_where_it_equals_what_was_there(
    place: tuple[Any, ...],
) -> None:
    snapshot = at(BOXES["shared"], 100.0, 1_750_000_000.0)
    document = json.loads(document_text(snapshot, verdicts(snapshot)))
    count = len(document["devices"])
    document["link_weights"] = [[1] * count for _ in range(count)]
    first = read("a", json.dumps(document).encode(), "run", 0.0)
    assert first.snapshot is not None
    *above, key = place
    node = document
    for each in above:
        node = node[each]
    node[key] = int(node[key]) if isinstance(node[key], bool) else bool(node[key])
    text = json.dumps(document).encode()
    assert read("a", text, "run", 0.0).snapshot is None
    assert read("a", text, "run", 0.0, first).snapshot is None


@contextmanager
def following(boxes: SshBoxes, names: str, *words: str) -> Iterator[Callable[[], dict[str, dict[str, Any]]]]:
    """The boxes by name, one document at a time."""
    with subprocess.Popen(
        [sys.executable, "-m", "gputui", "ls", "--hosts", names, "--json", "--follow", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=boxes.environment(dict(os.environ)),
    ) as process:

        def following_document() -> dict[str, dict[str, Any]]:
            assert process.stdout is not None
            found = json.loads(process.stdout.readline())
            BOXES_CHECK.validate(found)
            return {each["host"]: each for each in found["boxes"]}

        try:
            yield following_document
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


def until(
    document: Callable[[], dict[str, dict[str, Any]]], true: Callable[[dict[str, dict[str, Any]]], object]
) -> dict[str, dict[str, Any]]:
    deadline = time.monotonic() + 120
    while not true(found := document()):
        assert time.monotonic() < deadline, found
    return found


@pytest.mark.thorough
def test_boxes_that_are_not_there_hold_up_no_other(boxes: SshBoxes, idle: dict[str, str]) -> None:
    boxes.add("lively", idle)
    boxes.add_dead("dead")
    boxes.add_changed("changed")
    with (
        boxes.add_hung("hung2"),
        following(boxes, "hung2,dead,lively,changed", "--interval", "0.1") as document,
    ):
        first = until(document, lambda found: found["lively"]["state"] == "live")
        seen = until(
            document,
            lambda found: (
                all(found[name]["state"] == "dead" for name in ("hung2", "dead", "changed"))
                and found["lively"]["time"] > first["lively"]["time"]
            ),
        )
        assert len(seen["lively"]["devices"]) == 2 and seen["lively"]["error"] is None
        assert all(seen[name]["error"] for name in ("hung2", "dead", "changed"))


@pytest.mark.thorough
def test_a_connection_that_ends_is_made_again_and_meanwhile_the_last_reading_stays(
    boxes: SshBoxes, idle: dict[str, str]
) -> None:
    name = fresh(boxes, "again")
    home = boxes.add(name, idle)
    program = home / "bin" / "gputui"
    program.write_text(program.read_text().replace("exec", 'echo $$ > "$HOME/pid"; exec'))
    with following(boxes, name, "--interval", "0.1") as document:
        until(document, lambda found: found[name]["state"] == "live")
        os.kill(int((home / "pid").read_text()), signal.SIGKILL)
        gone = until(document, lambda found: found[name]["state"] == "dead")[name]
        assert gone["error"] and len(gone["devices"]) == 2
        until(document, lambda found: found[name]["state"] == "live")


def test_what_runs_there_ends_with_us(boxes: SshBoxes, idle: dict[str, str]) -> None:
    name = fresh(boxes, "ends")
    home = boxes.add(name, idle)
    program = home / "bin" / "gputui"
    program.write_text(program.read_text().replace("exec", 'echo $$ > "$HOME/pid"; exec'))
    with following(boxes, name, "--interval", "0.1") as document:
        until(document, lambda found: found[name]["state"] == "live")
    pid = int((home / "pid").read_text())
    until_true(lambda: not Path(f"/proc/{pid}").exists())


@pytest.fixture
def control(boxes: SshBoxes) -> Iterator[tuple[str, Callable[[str], int]]]:
    """Options that make connections share a master, and a function for `ssh -O` to it.

    The path of a socket must be short.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/master"

        def tell(what: str) -> int:
            argv = [str(boxes.path / "ssh"), "-S", path, "-O", what, "any"]
            return subprocess.run(argv, capture_output=True, check=False).returncode

        yield f"  ControlMaster auto\n  ControlPath {path}\n  ControlPersist 60\n", tell
        tell("exit")


@pytest.mark.thorough
def test_the_users_master_is_used_and_when_it_dies_the_connection_is_made_again(
    boxes: SshBoxes, idle: dict[str, str], call: Call, control: tuple[str, Callable[[str], int]]
) -> None:
    options, tell = control
    name = fresh(boxes, "shared")
    boxes.add(name, idle, options=options)
    assert len(entry(call, name)["devices"]) == 2
    assert tell("check") != 0, "a connection of ours, which may be ended at any moment, is no master"
    subprocess.run([str(boxes.path / "ssh"), name, "true"], capture_output=True, check=True)
    assert len(entry(call, name)["devices"]) == 2
    # The master was left alone: it is alive for the next connection.
    assert tell("check") == 0
    with following(boxes, name, "--interval", "0.1") as document:
        until(document, lambda found: found[name]["state"] == "live")
        assert tell("exit") == 0
        until(document, lambda found: found[name]["state"] == "dead")
        until(document, lambda found: found[name]["state"] == "live")


def test_a_connection_that_may_ask_leaves_its_answer_to_the_next_one_and_no_child(
    boxes: SshBoxes,
    idle: dict[str, str],
    control: tuple[str, Callable[[str], int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If masters are made on request, ours is a process of its own: our end ends no other connection."""
    options, tell = control
    name = fresh(boxes, "asks")
    boxes.add(name, idle, options=options.replace("  ControlPersist 60\n", ""))
    monkeypatch.setenv("PATH", str(boxes.path), prepend=":")
    answer = ask(name, ["--version"], Way(10, prompts=True))
    assert (answer.status, answer.trouble) == (0, None)
    assert tell("check") == 0


@pytest.mark.thorough
def test_a_master_that_is_killed_takes_no_connection_with_it_for_long(
    boxes: SshBoxes, idle: dict[str, str], control: tuple[str, Callable[[str], int]]
) -> None:
    options, _ = control
    name = fresh(boxes, "killed")
    boxes.add(name, idle, options=options)
    path = next(line.split()[1] for line in options.splitlines() if "ControlPath" in line)
    argv = [str(boxes.path / "ssh"), "-S", path, "-O", "check", "any"]
    subprocess.run([str(boxes.path / "ssh"), name, "true"], capture_output=True, check=True)
    with following(boxes, name, "--interval", "0.1") as document:
        until(document, lambda found: found[name]["state"] == "live")
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stderr
        os.kill(int("".join(filter(str.isdigit, said.partition("pid=")[2]))), signal.SIGKILL)
        until(document, lambda found: found[name]["state"] == "dead")
        until(document, lambda found: found[name]["state"] == "live")


def test_a_client_that_is_killed_at_any_moment_leaves_nothing_behind_there(
    boxes: SshBoxes, idle: dict[str, str]
) -> None:
    name = fresh(boxes, "orphan")
    home = boxes.add(name, idle)
    program = home / "bin" / "gputui"
    program.write_text(program.read_text().replace("exec", 'echo $$ >> "$HOME/pids"; exec'))
    started = home / "pids"
    started.touch()
    argv = [sys.executable, "-m", "gputui", "ls", "--hosts", name, "--json", "--follow", "--interval=0.1"]
    for moment in ("at once", "while it connects", "while it follows"):
        before = len(started.read_text().split())
        with subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=boxes.environment(dict(os.environ)),
        ) as process:
            assert process.stdout is not None
            if moment != "at once":
                until_true(lambda before=before: len(started.read_text().split()) > before)  # type: ignore[misc]
            while moment == "while it follows" and b'"uuid"' not in process.stdout.readline():
                assert process.poll() is None
            process.kill()
    pids = started.read_text().split()
    assert len(pids) >= 2
    until_true(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.parametrize("hangs", ["login", "answer"])
@pytest.mark.parametrize("end", ["give up", "kill"])
def test_no_ssh_is_left_of_a_box_that_answers_nothing(
    boxes: SshBoxes, idle: dict[str, str], tmp_path: Path, hangs: str, end: str
) -> None:
    """ssh considers the box alive (ServerAliveInterval); it ends neither with its input nor by SIGHUP."""
    name = fresh(boxes, "silent")
    silent = """trap '' HUP PIPE TERM INT; >"$HOME/in"; while [ -e "$HOME/in" ]; do sleep 1; done"""
    home = boxes.add(name, idle, before=silent if hangs == "login" else "")
    (home / "bin" / "gputui").write_text(f"#!/bin/sh\n{silent if hangs == 'answer' else ''}\n")
    call = ["ls", "--hosts", name] if end == "kill" else ["-c", _GIVES_UP, name]
    program_here = ["-m", "gputui"] if end == "kill" else []
    noted = tmp_path / "ssh"
    noted.mkdir()
    (noted / "ssh").write_text(f'#!/bin/sh\necho $$ >> {noted}/pids\nexec {boxes.path}/ssh "$@"\n')
    (noted / "ssh").chmod(0o755)
    environ = boxes.environment(dict(os.environ))
    with subprocess.Popen(
        [sys.executable, *program_here, *call],
        env={**environ, "PATH": f"{noted}:{environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            until_true((home / "in").exists)
            pids = [int(each) for each in (noted / "pids").read_text().split()]
            assert any(map(is_running, pids))
            if end == "kill":
                process.kill()
            until_true(lambda: not any(map(is_running, pids)))
            assert end == "kill" or process.wait(30) == 0
        finally:
            (home / "in").unlink(missing_ok=True)
            process.kill()


def test_ctrl_c_ends_a_call_while_several_boxes_answer_nothing(tmp_path: Path) -> None:
    ssh, pids = tmp_path / "ssh", tmp_path / "pids"
    ssh.write_text(f"#!/bin/sh\ntrap '' TERM INT HUP\necho $$ >> {pids}\nwhile :; do sleep 1; done\n")
    ssh.chmod(0o755)
    pids.touch()
    with subprocess.Popen(
        [sys.executable, "-m", "gputui", "ls", "--hosts", "one,two"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            until_true(lambda: len(pids.read_text().split()) == 2)
            process.send_signal(signal.SIGINT)
            # Boxes that are given up, after 35 s, have another status.
            assert process.wait(100) == 130
            until_true(lambda: not any(is_running(int(each)) for each in pids.read_text().split()))
        finally:
            process.kill()


_GIVES_UP = """
import sys
from gputui.sources.hosts import calls, session
from gputui.sources.hosts.ssh import Way
session.LOGIN_WITHIN = 5.0
assert calls.ask(sys.argv[1], ["ls"], Way(5), patience=0.0).trouble.kind == "unreachable"
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def older(home: Path, lacks: str = "--follow") -> None:
    """Make the gputui of a box one that does not know an option yet."""
    program = home / "bin" / "gputui"
    refuses = f'echo "gputui: unrecognized arguments: {lacks} (see gputui ls --help)" >&2; exit 2'
    text = program.read_text().partition("\n")[2]
    program.write_text(f'#!/bin/sh\ncase "$*" in *{lacks}*) {refuses};; esac\n{text}')


def test_an_older_gputui_that_lacks_an_option_is_sent_ours_for_any_call(
    boxes: SshBoxes, idle: dict[str, str], no_packages: str, call: Call
) -> None:
    name = fresh(boxes, "lacks")
    older(boxes.add(name, idle, path=no_packages), "--details")
    (found,) = call("ls", "--hosts", name, "--json", "--details").json["boxes"]
    assert found["error"] is None and "tensor_active" in str(found["devices"])


@pytest.mark.thorough
def test_an_older_gputui_that_cannot_be_followed_is_followed_by_a_copy_of_ours(
    boxes: SshBoxes, idle: dict[str, str], no_packages: str
) -> None:
    name = fresh(boxes, "older")
    home = boxes.add(name, idle, path=no_packages)
    older(home)
    with following(boxes, name, "--interval", "0.1") as document:
        seen = until(document, lambda found: found[name]["state"] != "connecting")[name]
        assert (seen["state"], seen["error"], len(seen["devices"])) == ("live", None, 2)
        assert (home / ".cache" / "gputui" / sent_core.digest() / "start.py").exists()


@pytest.mark.thorough
def test_an_older_gputui_without_a_python_is_no_box_that_can_be_followed(
    boxes: SshBoxes, tmp_path: Path
) -> None:
    name = fresh(boxes, "oldest")
    home = boxes.add(name, path=system_programs(tmp_path))
    older(home)
    with following(boxes, name, "--interval", "0.1") as document:
        seen = until(document, lambda found: found[name]["state"] != "connecting")[name]
        assert seen["state"] == "dead" and "older" in seen["error"] and "devices" not in seen


@pytest.mark.thorough
def test_a_box_of_nvidia_smi_is_followed_too_and_nothing_counts_as_free(
    boxes: SshBoxes, tmp_path: Path
) -> None:
    name = fresh(boxes, "smi")
    home = boxes.add(name, gputui=False, path=system_programs(tmp_path))
    program = home / "bin" / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{SMI}END\n")
    program.chmod(0o755)
    with following(boxes, name, "--interval", "0.1") as document:
        seen = until(document, lambda found: found[name]["state"] == "live")[name]
        assert [device["verdict"]["state"] for device in seen["devices"]] == ["unknown"] * 2
        until(document, lambda found: found[name]["time"] > seen["time"])


@pytest.mark.thorough
def test_a_box_that_goes_silent_is_stale(boxes: SshBoxes, idle: dict[str, str]) -> None:
    name = fresh(boxes, "silent")
    home = boxes.add(name, idle)
    program = home / "bin" / "gputui"
    program.write_text(program.read_text().replace("exec", 'echo $$ > "$HOME/pid"; exec'))
    with following(boxes, name, "--interval", "0.1") as document:
        until(document, lambda found: found[name]["state"] == "live")
        pid = int((home / "pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            stale = until(document, lambda found: found[name]["state"] == "stale")[name]
            assert stale["error"] and len(stale["devices"]) == 2
        finally:
            os.kill(pid, signal.SIGCONT)
        until(document, lambda found: found[name]["state"] == "live")
