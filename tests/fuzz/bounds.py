"""The most time and memory that each reader of a command's files takes: hostile files, in growing sizes.

`python -m fuzz --bounds`, in the folder tests/, prints the worst case of each reader. The time is that of the
reader's own thread. The memory is the growth of the highest use of its process: a busy machine changes
little.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from zlib import crc32

from fuzz.hostile_files import EVERY
from gputui.allocating.settings import settings
from gputui.cli.common import WrongCallError
from gputui.cli.experiment_call import _tasks_of_file
from gputui.inventory.errors import GputuiError
from gputui.jobs.experiments.log_figures import read_figures
from gputui.jobs.experiments.runner import last_lines
from gputui.jobs.last_lines import lines_in
from gputui.launching.compose import compose
from gputui.launching.host_environment import ThisHost, shebang
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.read_intent import read_intent
from gputui.launching.training_words import training_of
from gputui.planning.model import PlanningError
from gputui.planning.reading import read_model
from gputui.sources.recorded import RecordedSource
from gputui.timeline.usage import DamagedDayError, read_day

SECONDS, MIB = 0.2, 64.0
"""The most seconds and MiB that a reader may take."""

_STOPPED = 3.0
"""Seconds of CPU time after which a reading is ended."""

_REFERENCE_JSON = b"{%s}" % b",".join(b'"%x":"%x"' % (number, number) for number in range(1 << 16))
_REFERENCE_SECONDS = 0.022
"""A JSON document of 65,536 values, and the CPU seconds of its reading where the bounds were set."""

_ANSWERS = (PlanningError, WrongCallError, GputuiError, DamagedDayError)
"""Errors that give the reason why a file is not read."""

_ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


@dataclass(frozen=True)
class Reader:
    """A reader: the name of the file that it reads, the function that reads one, and the sizes that are
    tried.

    `kinds` are the languages of hostile files that may slow it down; bytes always belong to them.
    """

    file: str
    read: Callable[[Path], object]
    kinds: str
    sizes: tuple[int, ...]


_REFERENCE = Reader("reference.json", lambda path: json.loads(path.read_bytes()), "", ())


@dataclass(frozen=True)
class Worst:
    """CPU seconds and MiB of one reading, and the file that was read."""

    seconds: float
    mib: float
    what: str


def _intent(*words: str) -> Callable[[Path], object]:
    """Read the devices that a command names, and complete the command; "@" is the file."""

    def read(path: Path) -> object:
        options = LaunchOptions(tuple(word.replace("@", str(path)) for word in words))
        read_intent(options, _ENVIRON, ThisHost())
        return compose((), options, _ENVIRON, ThisHost()) if words[0] in ("accelerate", "deepspeed") else None

    return read


def _training(*words: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        return training_of(LaunchOptions(tuple(word.replace("@", str(path)) for word in words)), _ENVIRON)

    return read


def _model(path: Path) -> object:
    return read_model(str(path), {}, Path("/"))


def _safetensors(path: Path) -> object:
    data = path.read_bytes()
    path.write_bytes(len(data).to_bytes(8, "little") + data)
    return _model(path)


def _replayed(path: Path) -> object:
    """All readings that are due an hour after the first one."""
    now = iter((0.0, 3600.0))
    source = RecordedSource(str(path), lambda: next(now, 3600.0))
    source.open()
    return source.read()


def _day(path: Path) -> object:
    """The checksum is that of the text: who writes the file knows it."""
    data = path.read_bytes()
    path.write_bytes(b"%08x\n%s\n" % (crc32(data), data))
    return read_day(path)


def _log(path: Path) -> object:
    return read_figures(last_lines(path))


def _settings(path: Path) -> object:
    own = path.parent / "gputui" / "config.toml"
    own.parent.mkdir()
    return settings({"XDG_CONFIG_HOME": str(path.rename(own).parent.parent)})


_TRAINER = ("torchrun", "train.py")
_SMALL, _CAPPED = (617, 1 << 12, 1 << 14), (617, 1 << 12, 1 << 14, 1 << 16)
_SCRIPT = (1 << 10, 1 << 13, 1 << 15, 1 << 17, 1 << 20)
_JSON = (1 << 12, 1 << 20, 10 << 20, 16 << 20)

READERS: Mapping[str, Reader] = {
    "shell script": Reader("x.sh", _intent("bash", "@"), "shell", _SCRIPT),
    "shell script, what it trains": Reader("x.sh", _training("bash", "@"), "shell", _SCRIPT),
    "program's first line": Reader("x", lambda path: shebang(str(path)), "lines shell", (1 << 12,)),
    "Python script": Reader("x.py", _intent("python", "@"), "Python", _SCRIPT),
    "Python script, what it trains": Reader("x.py", _training("python", "@"), "Python", _SCRIPT),
    "YAML of accelerate": Reader(
        "c.yaml", _intent("accelerate", "launch", "--config_file", "@", "x.py"), "YAML JSON", _CAPPED
    ),
    "JSON of accelerate": Reader(
        "c.json", _intent("accelerate", "launch", "--config_file", "@", "x.py"), "JSON", _CAPPED
    ),
    "YAML of vLLM": Reader("c.yaml", _intent("vllm", "serve", "m", "--config", "@"), "YAML JSON", _CAPPED),
    "YAML of axolotl": Reader("c.yaml", _training("axolotl", "train", "@"), "YAML JSON", _CAPPED),
    "fsdp.json": Reader("f.json", _training(*_TRAINER, "--fsdp_config", "@"), "YAML JSON", _CAPPED),
    "ds_config.json": Reader("d.json", _training(*_TRAINER, "--deepspeed", "@"), "YAML JSON", _CAPPED),
    "accelerator_config": Reader(
        "a.json", _training(*_TRAINER, "--accelerator_config", "@"), "YAML JSON", _CAPPED
    ),
    "hostfile of deepspeed": Reader(
        "hosts", _intent("deepspeed", "--hostfile", "@", "x.py"), "lines", _CAPPED
    ),
    "config.json": Reader("config.json", _model, "JSON", _JSON),
    "adapter_config.json": Reader("adapter_config.json", lambda path: _model(path.parent), "JSON", _JSON),
    "safetensors header": Reader("m.safetensors", _safetensors, "JSON", _JSON),
    "safetensors index": Reader("model.safetensors.index.json", _model, "JSON", _JSON),
    "header of a GGUF file": Reader("m.gguf", _model, "GGUF", (617, 1 << 14, 1 << 20, 4 << 20)),
    "log of a variant": Reader("log", _log, "lines", (1 << 14, 16 << 20)),
    "last lines of a log": Reader("log", lambda path: lines_in(path.read_bytes()), "lines", (1 << 12,)),
    "recording": Reader("r.json", lambda path: RecordedSource(str(path)).open(), "JSON lines", _JSON),
    "recording of several readings": Reader("r.jsonl", _replayed, "readings", _JSON),
    "recording as CSV": Reader("r.csv", _replayed, "CSV", _JSON),
    "usage of a day": Reader("2026-11-26.json", _day, "days JSON", (617, 1 << 14, (1 << 20) - 10)),
    "settings": Reader("config.toml", _settings, "TOML lines", _CAPPED),
    "file of tasks": Reader(
        "tasks", lambda path: _tasks_of_file(str(path)), "lines", (1 << 14, 1 << 19, (1 << 20) - 1)
    ),
}


def files(reader: Reader, sizes: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    """The hostile files with which a reader is tried, with their descriptions."""
    for what, made in EVERY.items():
        if what.partition(":")[0] in ("bytes", *reader.kinds.split()):
            for size in sizes:
                yield f"{what}, {size} bytes", made(size)


def measured(reader: Reader, what: str, data: bytes) -> Worst:
    """Measure one reading, in a process of its own. Raises AssertionError for an unexpected error."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / reader.file
        file.write_bytes(data)
        answers, answer = os.pipe()
        child = os.fork()
        if not child:
            _child(reader, file, answer)
        os.close(answer)
        with os.fdopen(answers) as stream:
            said = stream.read()
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Worst(_STOPPED, 0.0, what)
    seconds, mib, problem = said.split(" ", 2)
    assert not problem, f"{what}: {problem}"
    return Worst(float(seconds), float(mib), what)


@functools.cache
def warmed_up(reader: Reader) -> None:
    """Import what the reader imports at the first use: that does not count against a file."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / reader.file).write_bytes(b"{a: 1}\n")
        with contextlib.suppress(*_ANSWERS):
            reader.read(Path(folder) / reader.file)


def slowness() -> float:
    """How many times more CPU time this machine takes now than the one on which the bounds were set; at
    least 1."""
    return max(1.0, measured(_REFERENCE, "", _REFERENCE_JSON).seconds / _REFERENCE_SECONDS)


def assert_costs(most: float, cost: Callable[[], float]) -> None:
    """Assert that work costs at most this much CPU time on the machine on which the bounds were set.

    `cost` does the work and returns its CPU seconds. One of four tries suffices. From the second on, the
    limit grows with how much slower this machine is now.
    """
    tries = [(1.0, cost())]
    while all(took > most * slower for slower, took in tries) and len(tries) < 4:
        tries.append((slowness(), cost()))
    assert any(took <= most * slower for slower, took in tries), f"more than {most} s: {tries}"


def cpu_seconds(work: Callable[[], object], clock: Callable[[], float] = thread_time) -> float:
    """The CPU seconds that the work takes on this thread, or on all threads: `process_time`."""
    began = clock()
    work()
    return clock() - began


def _child(reader: Reader, file: Path, answer: int) -> None:
    """Read the file and write the result to `answer`. Never returns."""
    problem = ""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    signal.setitimer(signal.ITIMER_PROF, _STOPPED)
    os.chdir(file.parent)
    before, began = _highest(), thread_time()
    try:
        reader.read(file)
    except _ANSWERS:
        pass
    except BaseException as error:  # noqa: BLE001 - whatever a reader lets through
        problem = f"{type(error).__name__}: {str(error)[:200]}"
    seconds, highest = thread_time() - began, _highest()
    os.write(answer, f"{seconds} {(highest - before) / 1024} {problem}".encode(errors="replace"))
    os._exit(0)


def _highest() -> int:
    """KiB of this process at its highest; a new process starts with its parent's value."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def worst(reader: Reader, sizes: Sequence[int]) -> tuple[Worst, Worst]:
    """The readings that took the most time and the most memory."""
    found = [measured(reader, what, data) for what, data in files(reader, sizes)]
    return max(found, key=lambda each: each.seconds), max(found, key=lambda each: each.mib)


def table(names: Sequence[str] = ()) -> int:
    """Print the worst case of each reader; return the number of readers beyond the bounds."""
    for reader in READERS.values():
        warmed_up(reader)
    beyond = 0
    print("| reader | ms | with | MiB | with |\n|---|---:|---|---:|---|")
    for name, reader in READERS.items():
        if names and name not in names:
            continue
        slow, large = worst(reader, reader.sizes)
        print(f"| {name} | {1000 * slow.seconds:.0f} | {slow.what} | {large.mib:.0f} | {large.what} |")
        sys.stdout.flush()
        beyond += slow.seconds > SECONDS or large.mib > MIB
    return beyond
