"""The check of a launch: starts its own interpreter with its environment, and asks which devices it sees.

The interpreter is started directly, or through a launcher that also chooses devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputui.checking import SCRIPTS, answer
from gputui.checking.framework import framework_of
from gputui.checking.report import Report, Variable
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import DocumentError
from gputui.launching.interpreter import InterpreterError, interpreter
from gputui.launching.launch import Launch
from gputui.launching.launchers import recognised
from gputui.launching.launchers.base import ScriptLauncher
from gputui.launching.start import missing_program
from gputui.launching.wrappers import unwrap
from gputui.system import child_process as process
from gputui.system.child_process import Cancelled
from gputui.system.environment import Environ

SECONDS = 120.0
"""The timeout for an interpreter's answer: torch from a cold network file system takes a minute."""


def check(
    launch: Launch,
    snapshot: Snapshot,
    environ: Environ,
    *,
    python: str | None = None,
    seconds: float = SECONDS,
    cancelled: Cancelled = None,
) -> Report:
    """Start the interpreter of `launch` as the launch would, and compare its devices with the chosen ones.

    `snapshot` is read with names; `environ` is the environment that the launch would inherit; `python` is an
    interpreter to ask instead of the command's own. Failures in the child are in the report, and raise
    nothing. May be called on any thread; takes up to `seconds`, or until `cancelled` is set.
    """
    launch = launch.started
    devices = tuple(snapshot.by_key.get(device.key, device) for device in launch.devices)
    environment = launch.environment(environ)
    try:
        taken = route(launch, environment, python)
    except InterpreterError as error:
        return Report(devices, snapshot, launch.vendor, trouble=str(error))
    report = Report(devices, snapshot, launch.vendor, taken.argv, taken.doubt)
    names = [name for name, _ in launch.changes]
    with process.answers() as folder:
        script = str(SCRIPTS / "probe.py")
        driver = launch.vendor.driver_probe
        framework = framework_of(launch.argv, launch.directory)
        asked = (launch.vendor.device_type, "-" if driver is None else str(driver), framework, *names)
        argv = (*taken.argv, script, str(folder), str(max(1, round(seconds))), *asked)
        ended = process.run(argv, environment, launch.directory, seconds, cancelled, launch.left_out)
        try:
            answers = [
                answer.read(process.read_answer(path), launch.vendor)
                for path in sorted(folder.glob("*.json"))
            ]
        except DocumentError as error:
            return _failed(report, ended, str(error))
    if not answers:
        return _failed(report, ended, None)
    return _reported(report, launch, taken, answers, ended)


def _failed(report: Report, ended: process.Ended, reason: str | None) -> Report:
    why = ended.trouble or reason
    if why is None:
        how = f"by signal {-ended.status}" if ended.status and ended.status < 0 else f"with {ended.status}"
        why = f"the interpreter ended {how} without answering"
    last = f": {ended.last_line}" if ended.last_line and ended.status is not None else ""
    return replace(report, trouble=f"{why}{last}")


def _reported(
    report: Report, launch: Launch, taken: Route, answers: Sequence[answer.Seen], ended: process.Ended
) -> Report:
    first = answers[0]
    has = dict(first.environment)
    variables = tuple(
        Variable(name, value, has.get(name)) for name, value in launch.changes if name not in taken.replaced
    )
    report = replace(report, seen=first, variables=variables, ranks=len(answers))
    if taken.launcher is not None and ended.status != 0:
        return _failed(report, ended, f"not every process of {taken.launcher} answered")
    if any(other.devices != first.devices for other in answers[1:]):
        return replace(report, trouble="the launcher's processes do not see the same devices")
    return report


@frozen
class Route:
    """The arguments to put before a script of ours.

    doubt     why it may not be the interpreter that will train
    launcher  the launcher that starts it, each of whose processes answers; None where there is one process
    replaced  variables of the launch that the launcher sets again
    """

    argv: tuple[str, ...]
    doubt: str | None = None
    launcher: str | None = None
    replaced: tuple[str, ...] = ()


def route(launch: Launch, environment: Environ, python: str | None) -> Route:
    """The way to the interpreter of `launch`, started with `environment`. Raises InterpreterError."""
    prefix, command = unwrap(launch.argv)
    launcher = recognised(command) if command else None
    if isinstance(launcher, ScriptLauncher) and launcher.chooses_devices:
        missing = missing_program(launch, environment)
        if missing is not None:
            raise InterpreterError(missing)
        replaced = tuple(
            name for name, value in launch.changes if name in launch.vendor.visibility.names and value is None
        )
        return Route((*prefix, *launcher.for_script(command, ())), None, launcher.name, replaced)
    found = interpreter(launch.argv, environment, launch.directory, python)
    return Route(found.argv, found.doubt)
