"""The check of a launch: its own interpreter is started with its environment, and asked what it sees."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gputui.checking import child, seen
from gputui.checking.report import Report, Variable
from gputui.checking.route import Route, RouteError, route
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.untrusted_json import DocumentError
from gputui.launching.launch import Launch

SECONDS = 120.0
"""How long an interpreter may take to answer: torch from a cold network file system takes a minute."""


def check(
    launch: Launch,
    snapshot: Snapshot,
    environ: Mapping[str, str],
    *,
    python: str | None = None,
    seconds: float = SECONDS,
    cancelled: threading.Event | None = None,
) -> Report:
    """Start the interpreter of `launch` as the launch would, and compare what it sees with what was chosen.

    `snapshot` is read with names; `environ` is what the launch would inherit; `python` an interpreter to ask
    in place of the command's own. Raises nothing for what goes wrong in the child: the report says it. May be
    called on any thread; takes up to `seconds`, or until `cancelled` is set.
    """
    devices = tuple(snapshot.by_key.get(device.key, device) for device in launch.devices)
    environment = launch.environment(environ)
    try:
        taken = route(launch, environment, python)
    except RouteError as error:
        return Report(devices, snapshot, trouble=str(error))
    report = Report(devices, snapshot, taken.argv, taken.doubt)
    names = [name for name, _ in launch.changes]
    with child.answers() as folder:
        script = str(child.SCRIPTS / "probe.py")
        argv = (*taken.argv, script, str(folder), str(max(1, round(seconds))), *names)
        ended = child.run(argv, environment, launch.directory, seconds, cancelled)
        try:
            told = [seen.read(child.read_answer(path)) for path in sorted(folder.glob("*.json"))]
        except DocumentError as error:
            return _failed(report, ended, str(error))
    if not told:
        return _failed(report, ended, None)
    return _told(report, launch, taken, told, ended)


def _failed(report: Report, ended: child.Ended, reason: str | None) -> Report:
    why = ended.trouble or reason
    if why is None:
        how = f"by signal {-ended.status}" if ended.status and ended.status < 0 else f"with {ended.status}"
        why = f"the interpreter ended {how} and did not answer"
    last = f": {ended.last_line}" if ended.last_line and ended.status is not None else ""
    return replace(report, trouble=f"{why}{last}")


def _told(
    report: Report, launch: Launch, taken: Route, told: Sequence[seen.Seen], ended: child.Ended
) -> Report:
    first = told[0]
    has = dict(first.environment)
    variables = tuple(
        Variable(name, value, has.get(name)) for name, value in launch.changes if name not in taken.replaced
    )
    report = replace(report, seen=first, variables=variables, ranks=len(told))
    if taken.launcher is not None and ended.status != 0:
        return _failed(report, ended, f"not every process of {taken.launcher} answered")
    if any(other.devices != first.devices for other in told[1:]):
        return replace(report, trouble="the launcher's processes do not see the same devices")
    return report
