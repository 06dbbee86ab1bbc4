"""The matrix of faults: every NVML function that the program calls, with every error, on one device and on
all, from the start and while the program runs; and the program's errors under each fault.

`python -m unit.fault_matrix` in `tests/` prints the size of the matrix, the time it takes, and the program's
errors.

The list of functions comes from the counters of the simulated library, so that no new call is forgotten.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gputui.choosing.verdict import State, verdicts
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.spec import Box, Mig, Task, sockets
from gputui.sources.source import NoSourceError, Want
from gputui.system.processes import ProcessTable
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from simnvml.rendering import Facts
from unit.simulated_gpus import H100, RTX_3090_GPU, bridged

CODES: dict[str, int] = {
    "not supported": 3,
    "no permission": 4,
    "not found": 6,
    "timeout": 10,
    "function not found": 13,
    "lost": 15,
    "reset required": 16,
    "struct of another version": 25,
    "unknown": 999,
}
"""The values of nvmlReturn_t in nvml.h."""

ONE_OF_A_KIND = (3, 15, 999)
"""The errors "not supported"; "lost", also for "reset required"; "unknown", also for all the others."""

_GONE = (15, 16)
_NOT_SUPPORTED = 3
_LACKING = (_NOT_SUPPORTED, 13)
"""What a driver answers for ever, and what is therefore asked again at a slow pace only."""

FIRST = Want.LOAD | Want.NAMES | Want.QUEUE | Want.PROCESSES
PLAIN = Want.LOAD | Want.NAMES | Want.QUEUE
CHANGED = PLAIN | Want.CHANGED_PROCESSES | Want.OWNERS
FULL = PLAIN | Want.MONITOR | Want.MODES | Want.DETAILS
WIRED = FULL | Want.LINKS | Want.TOPOLOGY
"""The readings of a screen: the first; most; every other; every thirtieth (FULL); and the second one."""

DECIDING = (
    "*",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetMigMode",
)
"""Functions that are needed to call a device free; of the errors of other functions, only "lost" matters."""

INSTANCES = ("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex")

ROW = (
    *(
        "name",
        "memory_total",
        "memory_used",
        "memory_free",
        "utilization",
        "temperature",
        "power",
        "sm_clock",
    ),
    "processes",
)
"""The facts of a device's row that can be read without one another."""

SERVES: dict[str, tuple[str, ...]] = {
    "nvmlDeviceGetName": ("name",),
    "nvmlDeviceGetMemoryInfo": ("memory_total", "memory_used", "memory_free"),
    "nvmlDeviceGetUtilizationRates": ("utilization",),
    "nvmlDeviceGetTemperature": ("temperature",),
    "nvmlDeviceGetPowerUsage": ("power",),
    "nvmlDeviceGetClockInfo": ("sm_clock",),
    "nvmlDeviceGetComputeRunningProcesses": ("processes",),
    "nvmlDeviceGetGraphicsRunningProcesses": ("processes",),
    "nvmlDeviceGetMPSComputeRunningProcesses": ("processes",),
    "nvmlDeviceGetGpuInstanceId": ("utilization",),
    "nvmlGpm": ("utilization",),
    **dict.fromkeys(("*", "nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"), ROW),
    **dict.fromkeys(("nvmlDeviceGetUUID", "nvmlDeviceGetMigMode", *INSTANCES), ROW),
}
"""What cannot be read without a function, by the beginning of its name. A GPU that has no handle, or of which
nobody knows whether it is divided, has no facts."""

_MAY_BE_MISSING = ("Graphics", "MPS", "ComputeMode", "MigMode", "MemoryInfo_v2", "_v3", "_v2")
"""Parts of names of deciding functions that some drivers have never had.

Without them nothing is missing, or an older version of the function answers.
"""


class Cell(NamedTuple):
    """One fault: a function, an error, a device (None: all of them), and whether it holds from the start."""

    function: str
    code: int
    label: str | None
    from_start: bool


class Ticks:
    """A clock in seconds that advances only when the matrix says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


_FACTS: dict[str, Facts] = {
    "0": {"gpm": 1},
    "0:1": {"graphics_active": 73_400, "sm_active": 41_000, "sm_occupancy": 20_000, "tensor_active": 9_000},
}
"""The performance monitor knows the load of an instance, in thousandths."""


def _box() -> Box:
    train = Task(devices=("0:1",), user="ines", command="python eval.py", pid=7012, memory=4000, load=50)
    return replace(
        BOXES["rtx3090"],
        name="matrix",
        gpus=(
            replace(H100, bus="07:00.0", numa=0, mig=(Mig("3g.40gb", 40_192), Mig("1g.10gb", 9_728))),
            replace(H100, bus="1B:00.0", numa=0),
            replace(RTX_3090_GPU, bus="41:00.0", numa=0),
            replace(RTX_3090_GPU, bus="61:00.0", numa=0),
        ),
        links=bridged(sockets((4,), "PHB", "PHB"), "NV4", (2, 3)),
        pcie=sockets((4,), "PHB", "PHB"),
        tasks=(train,),
    )


class Matrix:
    """The faults of one box on a simulated driver; each is tried on the same driver, after it has healed."""

    def __init__(self, driver: SimulatedNvml, unreadable_links: bool = False) -> None:
        self.driver, self.ticks = driver, Ticks()
        driver.show_box(_box(), facts=_FACTS, unreadable_links=unreadable_links)
        self.functions: dict[str, set[str]] = {}
        """The labels of the devices that are asked about, by NVML function."""
        self.behind: dict[str, str] = {}
        """The function that must be unsupported for this one to be called, "" for none."""
        self._usual: set[tuple[str, str]] = set()
        """The called functions and their devices while nothing is wrong."""
        self._steady: set[tuple[str, str]] = set()
        """The same without the first reading."""
        self._wiring: set[str] = set()
        """Functions that are called for links and topology only."""
        self.running = self._source()
        for want in (FIRST, WIRED):
            self._read(self.running, want)
        self.normal = self._read(self.running, FULL)
        self._find_functions()
        self.functions["*"] = {"", "1"}
        self.states = {key: verdict.state for key, verdict in verdicts(self.normal).items()}

    def _find_functions(self) -> None:
        """Find every called NVML function, including those called only where another is not supported."""
        wiring: set[str] = set()
        others: set[str] = set()
        asked: set[str] = set()
        refused = ""
        while True:
            source = self._source()
            for want in (FIRST, WIRED, FULL):
                self.driver.reset_counts()
                self._try(source, want)
                for function, label in self.driver.counts_by_device():
                    if function.startswith("nvml"):
                        self.functions.setdefault(function, set()).add(label)
                        self.behind.setdefault(function, refused)
                        (wiring if want is WIRED else others).add(function)
                        if not asked:
                            self._usual.add((function, label))
                            self._steady |= {(function, label)} if want is not FIRST else set()
            source.close()
            self.functions.setdefault("nvmlShutdown", set()).add("")
            self.behind.setdefault("nvmlShutdown", "")
            self.driver.heal()
            left = sorted(self.functions.keys() - asked)
            if not left:
                break
            refused = left[0]
            asked.add(refused)
            self.driver.error(refused, _NOT_SUPPORTED)
        self._wiring = wiring - others

    def cells(self, codes: Collection[int], without: Collection[str] = ()) -> Iterator[Cell]:
        """The whole matrix of this box with these errors, without these functions."""
        for function, labels in sorted(self.functions.items()):
            for code in codes if function not in without else ():
                for from_start in (True, False):
                    yield Cell(function, code, None, from_start)
                    for label in sorted(_one_of_each(labels)):
                        yield Cell(function, code, label, from_start)

    def wrong(self, cell: Cell) -> list[str]:
        """The program's errors under this fault, [] for none."""
        function, code, label, from_start = cell
        found: list[str] = []
        source = self._source() if from_start else self.running
        self.driver.error(function, code, label)
        # Links take long to read, so only these faults read them: a lost device has no links.
        whole = WIRED if function in self._wiring or code in _GONE else FULL
        for want in (FIRST, whole, PLAIN, CHANGED) if from_start else (whole, PLAIN, CHANGED):
            self.ticks.now += 1
            snapshot = self._try(source, want)
            if snapshot is not None:
                found += self._wrong_while_it_lasts(cell, snapshot)
                found += self._wrong_of_rows(cell, snapshot) if want is whole else ()
        self.driver.heal()
        for want in (PLAIN, CHANGED):
            self.ticks.now += 1
            snapshot = self._try(source, want)
        if not (from_start and code in _LACKING):
            found += self._wrong_after(snapshot, whole=False)
        self.ticks.now += 700
        for want in (whole if from_start else FULL, FULL, FULL):
            # Links and unsupported functions are asked again after at most ten minutes, and the load of an
            # instance takes three readings.
            self.ticks.now += 3
            snapshot = self._try(source, want)
        found += self._wrong_after(snapshot, whole=True)
        if from_start:
            source.close()
        elif found:
            self.running.close()
            self.running = self._source()
            for want in (FIRST, WIRED, FULL):
                self._read(self.running, want)
        return list(dict.fromkeys(found))

    def _wrong_while_it_lasts(self, cell: Cell, snapshot: Snapshot) -> Iterator[str]:
        label = cell.label
        now = verdicts(snapshot)
        names = {self.normal.label(d): d.key for d in self.normal.devices}
        of_key = {snapshot.label(d): now[d.key].state for d in snapshot.devices}
        for name, key in names.items():
            before, state = self.states[key], of_key.get(name)
            if label is None or name == label or (":" in name and name.split(":")[0] == label):
                hit = label is None or name == label
                yield from self._wrong_of_one(cell, name, before, state, hit)
            elif ":" in label and name == label.split(":")[0]:
                continue
            elif state != before:
                yield f"GPU {name} is {state}, not {before}, though it is not the one"

    def _wrong_of_one(
        self, cell: Cell, name: str, before: State, state: State | None, hit: bool
    ) -> Iterator[str]:
        function, code, _, from_start = cell
        if state is None:
            if ":" not in name:
                yield f"GPU {name} has vanished"
        elif function.startswith(DECIDING):
            usual = self._usual if from_start else self._steady
            # An error that names no version holds for all versions of a function.
            versions = {each for each, label in usual if label == name and _is_of(function, each)}
            called = function == "*" or bool(versions)
            old = code in _LACKING and from_start and any(part in function for part in _MAY_BE_MISSING)
            # The older version of the function then reports the memory.
            fallback = from_start and code not in _GONE and function == "nvmlDeviceGetMemoryInfo_v2"
            never = function == "nvmlDeviceGetMigMode" and code in _LACKING and name in "23"
            if state == "free" and called and hit and not (old or fallback or never):
                yield f"GPU {name} is free"
        else:
            may_change = code in _GONE or function.startswith(INSTANCES)
            if state not in ((before, "lost", "unknown") if may_change else (before,)):
                yield f"GPU {name} is {state}, not {before}"

    def _wrong_of_rows(self, cell: Cell, snapshot: Snapshot) -> Iterator[str]:
        """A fact that does not come from the function must not go with it, unless the device is lost."""
        served = {fact for name, facts in SERVES.items() if cell.function.startswith(name) for fact in facts}
        known = self.normal.by_key
        for now in snapshot.devices if cell.code not in _GONE else ():
            if now.key not in known:
                # A GPU that has never been opened.
                continue
            before = known[now.key]
            # At the second reading, the load of an instance has been sampled only once.
            sampled = {"utilization"} if now.parent and cell.from_start else set()
            for fact in sorted({*ROW} - served - sampled):
                if getattr(now, fact) != getattr(before, fact):
                    yield f"{fact} of GPU {self.normal.label(before)} is {getattr(now, fact)!r}"

    def _wrong_after(self, snapshot: Snapshot | None, whole: bool) -> Iterator[str]:
        if snapshot is None:
            yield "nothing to read after it has healed"
            return
        for key, verdict in verdicts(snapshot).items():
            if verdict.state != self.states.get(key):
                yield f"{key} is {verdict.state} after it has healed"
        if len(snapshot.devices) != len(self.normal.devices):
            yield f"{len(snapshot.devices)} GPUs after it has healed"
        if whole:
            for now, before in zip(snapshot.devices, self.normal.devices, strict=False):
                different = [n for n in before.__slots__ if getattr(now, n) != getattr(before, n)]
                if different:
                    yield f"{', '.join(different)} of GPU {self.normal.label(before)} differ for ever"
            for part in ("host", "links", "pcie", "peers", "topology"):
                known = snapshot.links or part == "host"
                if known and getattr(snapshot, part) != getattr(self.normal, part):
                    yield f"{part} differ for ever"

    def _source(self) -> NvmlSource:
        return NvmlSource(ProcessTable(host_pids=False), lambda: 1_750_000_000.0, ticks=self.ticks)

    def _read(self, source: NvmlSource, want: Want) -> Snapshot:
        self.ticks.now += 1
        return source.read(want)

    def _try(self, source: NvmlSource, want: Want) -> Snapshot | None:
        """Return None where there is no source to read, as the sampler sees it.

        Any other exception is a defect.
        """
        try:
            return self._read(source, want)
        except NoSourceError:
            return None

    def close(self) -> None:
        self.running.close()


def _is_of(function: str, symbol: str) -> bool:
    """Whether the simulated library applies an error of `function` to this symbol, or to a version of it."""
    return symbol == function or symbol.startswith(f"{function}_v")


def _one_of_each(labels: Collection[str]) -> set[str]:
    """One GPU and one instance out of the labels; GPU 1 if it is among them."""
    gpus = [label for label in labels if label and ":" not in label]
    instances = [label for label in labels if ":" in label]
    found = {max(gpus, key=lambda label: (label == "1", label))} if gpus else set()
    return found | set(sorted(instances)[:1])


def try_all(
    driver: SimulatedNvml, codes: Collection[int] = tuple(CODES.values()), share: float = 1.0
) -> tuple[int, int, list[str]]:
    """The number of functions, the number of faults, and the errors found.

    `codes` are the NVML errors tried; `share` is the part of the faults that is tried, drawn anew each time.
    """
    tried: set[str] = set()
    count, wrong = 0, []
    for unreadable_links in (False, True):
        matrix = Matrix(driver, unreadable_links)
        for cell in matrix.cells(codes, without=frozenset(tried)):
            if random.random() >= share:
                continue
            count += 1
            where = "all" if cell.label is None else cell.label
            when = "from the start" if cell.from_start else "while it runs"
            wrong += [f"{cell.function} {cell.code} on {where} {when}: {it}" for it in matrix.wrong(cell)]
        tried |= matrix.functions.keys()
        matrix.close()
    return len(tried), count, wrong


OF_NO_GPU = ("nvmlInit", "nvmlShutdown", "nvmlSystem", "nvmlDeviceGetCount", "nvmlErrorString", "nvmlEvent")
"""Functions without a GPU: one that hangs blocks its thread, and the screen says so (test_faults.py)."""


class Hangs(NamedTuple):
    """The result of `hang_each`: the number of hangs, the functions that hang only at the start, and the
    errors.

    A function that is not called again once a GPU is known can hang only at the start.
    """

    tried: int
    at_start_only: int
    wrong: list[str]


def hang_each(driver: SimulatedNvml, matrix: Matrix, functions: Collection[str], patience: float) -> Hangs:
    """Let each function hang on one GPU, from the start and while the program runs, and then return.

    A function that is asked about no GPU hangs on all.
    """
    tried, at_start_only, wrong = 0, 0, list[str]()
    for function in sorted(functions):
        if function.startswith(OF_NO_GPU):
            continue
        gpus = [label for label in matrix.functions[function] if label and ":" not in label]
        label = max(gpus, key=lambda each: (each == "1", each), default=None)
        for from_start in (True, False):
            where = f"{function} hangs {'from the start' if from_start else 'while it runs'}"
            hung, found = _hang(driver, function, label, matrix.behind[function], from_start, patience)
            wrong += [f"{where}: {it}" for it in found]
            tried += hung
            if not hung and from_start:
                wrong.append(f"{where}: it was not called")
            at_start_only += not hung and not from_start
    return Hangs(tried, at_start_only, wrong)


def _hang(
    driver: SimulatedNvml, function: str, label: str | None, behind: str, from_start: bool, patience: float
) -> tuple[bool, list[str]]:
    """Whether the function hung at all, and the errors found then.

    `behind` is the function made unsupported.
    """
    driver.show_box(_box(), facts=_FACTS)
    if behind:
        driver.error(behind, _NOT_SUPPORTED)
    ticks, wrong = Ticks(), list[str]()
    source = NvmlSource(ProcessTable(host_pids=False), ticks=ticks, patience=patience)
    known = NvmlSource(ProcessTable(host_pids=False), ticks=ticks) if from_start else source
    for want in (FIRST, WIRED):
        known.read(want)
    before = known.read(FULL)
    if from_start:
        known.close()
    normal = {key: each.state for key, each in verdicts(before).items()}
    names = {device.key: before.label(device).split(":")[0] for device in before.devices}
    # Before a GPU's UUID is known, its key is its index.
    of_gpu = {key for key in normal if label in (None, names[key])} | {f"index {label}"}
    whole = {device.key for device in before.devices if device.parent is None}
    driver.hang(function, label)
    hung = False
    for want in (FIRST if from_start else FULL, WIRED, PLAIN, CHANGED, FULL):
        ticks.now += 1
        snapshot = source.read(want)
        hanging = {source._gpus[at].devices[0].key for at in source._hanging}
        hung = hung or source._is_inside
        if not whole <= (found := {device.key for device in snapshot.devices}) and not from_start:
            wrong.append(f"{whole - found} have vanished")
        for key, each in verdicts(snapshot).items():
            if key in hanging and (each.state == "free" or key not in of_gpu):
                wrong.append(f"{key} hangs and is {each.state}")
            elif key not in of_gpu and each.state != normal.get(key):
                wrong.append(f"{key} is {each.state}, not {normal.get(key)}")
            elif not source._hanging and each.state != normal.get(key):
                wrong.append(f"{key} is {each.state} though nothing of it hangs")
    driver.heal()
    until = time.monotonic() + 10
    while source._is_inside and time.monotonic() < until:
        time.sleep(0.002)
        source._take_back()
    for want in (PLAIN, CHANGED, FULL):
        ticks.now += 61
        snapshot = source.read(want)
    states = {key: each.state for key, each in verdicts(snapshot).items()}
    if states != normal:
        wrong.append(
            f"when it is back the devices are {sorted(states.values())}, not {sorted(normal.values())}"
        )
    if len(snapshot.links) != len(snapshot.devices):
        wrong.append("no links when it is back")
    source.close()
    return hung, list(dict.fromkeys(wrong))


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        driver = SimulatedNvml(Path(directory))
        driver.use_here()
        began = time.monotonic()
        functions, count, wrong = try_all(driver)
        took = time.monotonic() - began
        matrix = Matrix(driver)
        hangs = hang_each(driver, matrix, matrix.functions.keys() - {"*"}, 0.1)
        matrix.close()
        driver.leave_here()
    print(*wrong, *hangs.wrong, sep="\n")
    seconds = time.monotonic() - began - took
    print(f"{hangs.tried} hangs in {seconds:.1f} s, {len(hangs.wrong)} wrong;", end=" ")
    print(f"{hangs.at_start_only} functions are not asked again, and hang at the start only")
    print(f"{functions} functions, {count} faults in {took:.1f} s, {len(wrong)} wrong")
    return bool(wrong or hangs.wrong)


if __name__ == "__main__":
    sys.exit(main())
