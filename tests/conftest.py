"""The base of all tests: an environment and a home of their own, and the simulated NVIDIA driver."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from simnvml import SimulatedNvml, build

# An example that takes long shows that the machine is busy, not that the program is wrong.
settings.register_profile(
    "any speed", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any speed")


_FROM_OUTSIDE = re.compile(
    # The paths of programs and their libraries, the folder for temporary files, the time zone.
    "PATH|LD_LIBRARY_PATH|TMPDIR|TZ|CC"
    # Options of the tests themselves, and of the tools that measure them.
    "|PYTEST_.*|HYPOTHESIS_.*|COV_.*|COVERAGE_.*|PYTHONDONTWRITEBYTECODE"
    "|GPUTUI_RECORD|GPUTUI_RECORDED_VENDORS|GPUTUI_TEST_FRAMEWORKS"
    # Access to packages, for the tests that install some.
    "|PIP_.*|UV_.*|SSL_CERT_.*|REQUESTS_CA_BUNDLE|(?i:https?|all|no)_proxy"
)
"""The variables of the calling environment that the tests may see. They cannot depend on any other: hidden
devices, ranks, a scheduler's job, agents, multiplexers, settings of gputui itself."""

_HOMES = Path(tempfile.mkdtemp(prefix="gputui-homes-"))
"""The homes of the tests of this process. No other process and no person shares them."""

_WORKERS_A_CORE = 3
"""More than one, since many tests wait for a program or a clock."""


def _leave_everything_outside() -> None:
    """Hide the environment of the person who runs the tests from this process and its children.

    This runs when this file is imported, before any file with tests is: some look at the environment when
    they are imported.
    """
    for name in [name for name in os.environ if not _FROM_OUTSIDE.fullmatch(name)]:
        del os.environ[name]
    os.environ.update(HOME=str(_HOMES), LANG="C.UTF-8", TERM="xterm-256color")


_leave_everything_outside()


def pytest_unconfigure() -> None:
    """Remove the homes."""
    shutil.rmtree(_HOMES, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return the number of workers that `-n auto` means, where the environment does not say."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return _WORKERS_A_CORE * len(usable)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker where the compiled tests of this run are."""
    node.workerinput["compiled"] = str(_HOMES / "compiled")


def _compile_once(config: pytest.Config) -> None:
    """Have the workers share the test files that each of them has compiled, with assertions rewritten.

    Where PYTHONDONTWRITEBYTECODE is set, each worker would compile all of them, which takes ten seconds.
    Nothing is written next to the sources: the folder of compiled files belongs to this run and is removed
    with it.
    """
    if sys.dont_write_bytecode and (folder := getattr(config, "workerinput", {}).get("compiled")):
        sys.dont_write_bytecode, sys.pycache_prefix = False, folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--skipped-to",
        metavar="FILE",
        help="write the test files of which a test was skipped into FILE, a line each",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="run all tests; without a path, those that are marked thorough are left out otherwise",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the thorough tests where no path is given, so that it takes three minutes and not four."""
    if config.getoption("thorough") or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    left_out = [item for item in items if item.get_closest_marker("thorough")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]


def pytest_configure(config: pytest.Config) -> None:
    """Prepare this process, and what the tests start from it."""
    if randomly := config.pluginmanager.get_plugin("randomly"):
        # pytest-randomly asks every installed package how to seed it. deepspeed's answer imports torch into
        # every worker, which takes seconds, and no test uses random numbers of another package.
        randomly.entrypoint_reseeds = []
    _compile_once(config)
    # In the background of a shell, Ctrl-C is ignored, and all children of the tests would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # Under `nohup pytest`, this process still survives, but its children have the default action again.
        signal.signal(signal.SIGHUP, lambda number, frame: None)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Make the collection quick: it is the same work in every worker.

    In a new clone every test file is compiled, with its assertions rewritten. Where all tests are collected,
    each worker begins at another file, and finds the files of the others compiled when it reaches them.
    """
    # Collection makes ten thousand tests, and none of them is garbage.
    gc.disable()
    config = session.config
    which = re.fullmatch(r"gw(\d+)", str(getattr(config, "workerinput", {}).get("workerid")))
    if which and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        files = sorted(Path(__file__).parent.glob("*/test_*.py"))
        first = len(files) * int(which[1]) // int(config.workerinput["workercount"])  # type: ignore[attr-defined]
        for file in files[first:] + files[:first]:
            # The collection reports an error of a file, or the reason why it is skipped.
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(f"{file.parent.name}.{file.stem}")
    try:
        return (yield)
    finally:
        # The present objects stay, and new ones are examined less often: this saves a twentieth of the time.
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the order where the header with it is left out (`-q`), or has scrolled away before a failure."""
    seed = config.getoption("randomly_seed", None)
    failed = any(terminalreporter.stats.get(kind) for kind in ("failed", "error"))
    if isinstance(seed, int) and (failed or config.get_verbosity() < 0):
        terminalreporter.write_line(f"The order of this run: --randomly-seed={seed}")
    if file := config.getoption("skipped_to"):
        skipped = {report.nodeid.partition("::")[0] for report in terminalreporter.stats.get("skipped", [])}
        Path(file).write_text("".join(f"{name}\n" for name in sorted(skipped)))


_NUMBERS = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pytest's own `tmp_path`, without the link to the latest one, which takes longer than most tests do."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}{next(_NUMBERS)}", numbered=False)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for one test, with its remembered launches and its jobs."""
    folder = _HOMES / str(next(_NUMBERS))
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def own_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of claims, and settings, for one test: not those of the machine that runs the tests."""
    folder = tmp_path / "claims"
    monkeypatch.setenv("GPUTUI_CLAIMS", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder


@pytest.fixture(autouse=True)
def patient_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter in line keeps its place for an hour without a report.

    Many tickets of tests never report, and on a busy machine a test takes longer than a real waiter may be
    silent. Forks of the test's process inherit this.
    """
    from gputui.allocating import queue

    monkeypatch.setattr(queue, "_SILENT", 3600.0)


@pytest.fixture(scope="session")
def nvml_library() -> Path:
    """The simulated libnvidia-ml.so.1, compiled."""
    return build()


@pytest.fixture
def simulated_nvml(nvml_library: Path, tmp_path: Path) -> SimulatedNvml:
    """A simulated driver for one test; it shows no box yet, so that NVML does not start."""
    return SimulatedNvml(tmp_path, nvml_library)


@pytest.fixture
def nvml_here(simulated_nvml: SimulatedNvml) -> Iterator[SimulatedNvml]:
    """The same driver, loaded by pynvml in the process of the tests."""
    simulated_nvml.use_here()
    yield simulated_nvml
    simulated_nvml.leave_here()
