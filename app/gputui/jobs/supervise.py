"""A job's supervisor: a program that starts the command, waits for its end and records how it ended.

    python -I -S supervise.py FOLDER PIPE [DESCRIPTOR…]

It imports nothing of gputui and little else, because it lives as long as the job (9 MB, 5 of them its own);
files that do the same are loaded by their paths (`_loaded`). Its stdin carries the directory, the cap of
the log, a pipe, the command and its environment, of which nothing applies to the supervisor: an agent may
name any variable. Its stdout and stderr are the job's log. To PIPE it writes "started", or the step at which
the start failed and the errno. Only the command inherits the DESCRIPTORs.

The command never begins before its pid is in the record. SIGTERM begins a stop with the signal and the
seconds of grace from the file "stop" in the folder; so do, with SIGTERM, the end of the seconds in the file
"limit", which begin when the command has its devices, and, after a warning, the time for which a job has not
used its devices (`_Look`). The signal goes to the command's process group and,
once the command has ended, to the remaining processes; after the grace, SIGKILL goes to all of them.
Launchers such as torchrun start workers in their own sessions, which no signal to a group reaches.

A log above its cap loses its middle (log_cap.py). A job that is tied to a process is stopped when that
process ends, even by SIGKILL: the process holds the other end of a pipe. When the job has ended, the command
of the file "notify" is started. On Linux, orphans become children of the supervisor (PR_SET_CHILD_SUBREAPER,
prctl(2)), so that every process of the job stays a descendant.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from types import ModuleType

_PACKAGE = os.path.abspath(__file__).rsplit("/", 2)[0]  # noqa: PTH100
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of linux/prctl.h."""
_GRACE = 10.0
_NOTIFY_TIME = 10.0
"""Seconds that the command of "notify" may take."""
_LOOKED_AWAY = 90.0
"""The most seconds between two readings between which a job counts as idle (choosing/state_times.py)."""
_UNUSED = 10
"""The status of the command of `_Look` that says that the job does not use its devices (cli/recorder.py)."""
_WARNING = 300.0
"""The most seconds from the warning of an idle job to its stop."""
_AGAIN, _AT_MOST = 0.05, 1.0
"""Seconds between two rounds of SIGKILL: a process may have started another one meanwhile."""
_END = 512
"""Bytes that are reserved for the record of the end."""
_WAITED_FOR = (signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM, signal.SIGIO)
_NOT_FOR_US = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGUSR1, signal.SIGUSR2)


def _loaded(name: str) -> ModuleType:
    """The module in a file of gputui that imports nothing of it. Raises OSError."""
    file = f"{_PACKAGE}/{name}"
    with open(file, "rb") as opened:  # noqa: PTH123
        code = compile(opened.read(), file, "exec")
    module = type(os)("loaded")
    exec(code, module.__dict__)
    return module


_LOG_CAP, _PROCESSES, _SPAN = map(
    _loaded, ("jobs/log_cap.py", "system/process_stat.py", "inventory/duration.py")
)
"""They are loaded at the start: gputui may be replaced while the job runs."""


def main() -> None:
    folder, pipe, *others = sys.argv[1:]
    answer, descriptors = int(pipe), [int(other) for other in others]
    try:
        supervisor = os.fork()
    except OSError as error:
        _reply(answer, f"process {error.errno}")
        return
    if supervisor:
        # Our starter waits for this process only; init adopts the other one.
        os._exit(0)
    os.set_inheritable(answer, False)
    given = _read_command()
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    for number in _WAITED_FOR:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, _WAITED_FOR)
    _adopt_orphans()
    try:
        command, trouble = _start(folder, given)
    except _NoProcessError as error:
        _reply(answer, f"process {error.errno}")
        return
    except OSError as error:
        _reply(answer, f"record {error.errno}")
        raise
    for descriptor in descriptors:
        os.close(descriptor)
    os.chdir("/")
    if trouble is None:
        _reply(answer, "started")
        end = _Watch(folder, command, given).until_the_end()
        _remove_claims(folder)
        with contextlib.suppress(OSError):
            # A job that was killed before it read its arguments leaves this file, which may hold secrets.
            os.unlink(f"{folder}/words.json")  # noqa: PTH108 - pathlib would be a megabyte
        with contextlib.suppress(OSError):
            # Where it cannot be written, the end is shown as unknown.
            _write_end(folder, end.json)
        _notify(folder, f"{end.words} after {_SPAN.duration(end.seconds)}")
        return
    step, why = trouble
    os.waitpid(command, 0)
    status = 127 if step == "program" and why == errno.ENOENT else 126
    facts = f'"status": {status}, "trouble": {{"step": "{step}", "errno": {why}}}'
    with contextlib.suppress(OSError):
        _write_end(folder, f'{{"ended": {time.time()}, {facts}}}')
    _reply(answer, f"{step} {why}")


class _Command:
    """The command to run, as bytes from stdin.

    directory  its working directory, "" for ours
    cap        the most bytes that its log may have on the disk (0: any)
    tie        the pipe whose closing stops the job, "" for none
    every      seconds before the first call of `look`, the most between two, and those after which an idle
               job is stopped, 0 for never (`_Look`)
    left_out   the device files that the command cannot open
    """

    def __init__(
        self,
        directory: bytes,
        cap: bytes,
        tie: bytes,
        every: bytes,
        left_out: list[bytes],
        look: list[bytes],
        argv: list[bytes],
        variables: list[bytes],
    ) -> None:
        self.directory, self.cap, self.argv = directory, int(cap), argv
        self.environment = dict(each.split(b"=", 1) for each in variables)
        first, most, idle = map(float, every.split())
        self.left_out, self.look = left_out, _Look(first, most, idle, look)
        self.tie = int(tie) if tie else None
        if self.tie is not None:
            os.set_inheritable(self.tie, False)


def _read_command() -> _Command:
    """Read the command from stdin, and replace stdin by /dev/null."""
    data = b""
    while piece := os.read(0, 1 << 20):
        data += piece
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    words = data.split(b"\0")
    counts = [int(each) for each in words[:4] if each.isdigit()]
    if len(counts) < 4 or len(words) != 8 + sum(counts):
        raise SystemExit(
            "gputui: the process that started this job ended before it had sent the whole command"
        )
    rest, lists = words[8:], list[list[bytes]]()
    for count in counts:
        lists.append(rest[:count])
        del rest[:count]
    directory, cap, tie, every = words[4:8]
    return _Command(directory, cap, tie, every, *lists)


def _reply(answer: int, text: str) -> None:
    """Answer the process that started us. It may have ended, which is not an error."""
    with contextlib.suppress(BrokenPipeError):
        os.write(answer, text.encode())
    os.close(answer)


def _write(folder: str, name: str, text: str) -> None:
    """Write a file of the record, whole or not at all (as `write_private` of system/files.py does)."""
    new = f"{folder}/.{name}.{os.getpid()}"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(handle, 0o600)
        _write_all(handle, text)
    except OSError:
        os.unlink(new)  # noqa: PTH108 - pathlib would be a megabyte
        raise
    finally:
        os.close(handle)
    os.rename(new, f"{folder}/{name}")  # noqa: PTH104


def _write_all(handle: int, text: str) -> None:
    data = text.encode()
    if os.write(handle, data) < len(data):
        # A full disk may have room for only a part of the data.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _reserve_end(folder: str) -> None:
    """Reserve disk space for the record of the end: by then the job may have filled the disk."""
    _write(folder, ".end", " " * _END)


def _write_end(folder: str, text: str) -> None:
    """Write the record of the end into the reserved space. Blanks after JSON have no meaning."""
    place = f"{folder}/.end"
    try:
        handle = os.open(place, os.O_WRONLY | os.O_NOFOLLOW)
    except OSError:
        _write(folder, "ended.json", text)
        return
    try:
        _write_all(handle, text.ljust(_END))
    finally:
        os.close(handle)
    os.rename(place, f"{folder}/ended.json")  # noqa: PTH104


def _remove_claims(folder: str) -> None:
    """Empty and remove the records of the job's claims, by the rules of `remove_ended`
    (allocating/claims/read.py). A record stays if a process that the job has left behind holds it."""
    import fcntl
    import struct

    # `struct flock64`: any range that would block a read lock, that is, any range locked for writing.
    any_range = struct.pack(
        "hhqqi4x" if sys.maxsize > 2**32 else "hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0
    )
    with contextlib.suppress(OSError, AttributeError), open(f"{folder}/claims", "rb") as paths:  # noqa: PTH123
        for path in paths.read().splitlines():
            with contextlib.suppress(OSError):
                handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    made_for = b'{"record": "%s"' % path.rpartition(b"/")[2]
                    free = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, any_range)
                    ended = struct.unpack_from("h", free)[0] == fcntl.F_UNLCK
                    ours = os.fstat(handle).st_uid == os.geteuid()
                    if ours and ended and os.pread(handle, len(made_for), 0) == made_for:
                        os.ftruncate(handle, 0)
                        os.unlink(path)  # noqa: PTH108 - pathlib would be a megabyte
                finally:
                    os.close(handle)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


class _NoProcessError(OSError):
    """No more processes can be started (`ulimit -u`)."""


def _start(folder: str, given: _Command) -> tuple[int, tuple[str, int] | None]:
    """Start the command. Returns its pid, and the step and the errno at which the start failed, else None.

    Raises OSError when the record cannot be written.
    """
    go, allow = os.pipe()
    failed, fail = os.pipe()
    try:
        command = os.fork()
    except OSError as error:
        raise _NoProcessError(error.errno, "") from None
    if command == 0:
        try:
            os.close(allow)
            # No byte arrives when the record could not be written or the supervisor was killed.
            if os.read(go, 1):
                _become(given, fail)
        finally:
            os._exit(126)
    os.close(go)
    os.close(fail)
    stats = ((pid, _PROCESSES.process_stat(pid)) for pid in (os.getpid(), command))
    supervisor, theirs = (
        f'{{"pid": {pid}, "ticks": {"null" if stat is None else stat.ticks}}}' for pid, stat in stats
    )
    _write(
        folder,
        "started.json",
        f'{{"supervisor": {supervisor}, "command": {theirs}, "started": {time.time()}}}',
    )
    _reserve_end(folder)
    os.write(allow, b"+")
    os.close(allow)
    said = os.read(failed, 100).decode()
    os.close(failed)
    step, _, number = said.partition(" ")
    return command, (step, int(number)) if said else None


def _become(given: _Command, fail: int) -> None:
    """Become the command. Returns only when that fails, and then has written the reason to `fail`."""
    os.setsid()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    step = "directory"
    try:
        if given.directory:
            os.chdir(given.directory)
        step = "confinement"
        if given.left_out:
            _confine(given.left_out)
        step = "program"
        _execute(given.argv, given.environment)
    except (OSError, ValueError) as error:
        # Python raises ValueError for an empty program.
        why = error.errno if isinstance(error, OSError) else errno.EINVAL
        os.write(fail, f"{step} {why}".encode())


def _confine(left_out: list[bytes]) -> None:
    """Confine the process with system/landlock.py, which only the command's process loads. Raises OSError."""
    _loaded("system/landlock.py").confine(left_out)


def _execute(argv: list[bytes], environment: dict[bytes, bytes]) -> None:
    """Execute a program as a shell does: search PATH, and run text without "#!" with sh. Raises OSError."""
    paths = [argv[0]]
    if b"/" not in argv[0]:
        places = environment.get(b"PATH", os.fsencode(os.defpath)).split(b":")
        paths = [b"%s/%s" % (place or b".", argv[0]) for place in places]
    worst = OSError(errno.ENOENT, "")
    for path in paths:
        try:
            os.execve(path, argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == errno.ENOEXEC and _is_text(path):
                os.execve("/bin/sh", [b"/bin/sh", path, *argv[1:]], environment)
            worst = error if worst.errno == errno.ENOENT else worst
    raise worst


def _is_text(path: bytes) -> bool:
    handle = os.open(path, os.O_RDONLY)
    return b"\0" not in os.read(handle, 256)


class _End:
    """How a job ended: the text for its record, words for people, and the seconds that it ran."""

    def __init__(self, json: str, words: str, seconds: float) -> None:
        self.json, self.words, self.seconds = json, words, seconds


class _Look:
    """Runs a command after `every` seconds, then after twice as long each time, up to `most`; one at a time.

    The command records the usage (`gputui record --note`). It may also check the devices that the job runs
    on, and ask us to stop the job where it has not claimed them (`--if-stray`). Its status tells whether the
    job uses them (`--if-idle`).

    idle  the seconds without use after which the job is stopped, 0 for never
    """

    def __init__(self, every: float, most: float, idle: float, words: list[bytes]) -> None:
        self._words, self._most, self.idle = words, most, idle
        self._begun = self._read_at = 0.0
        self._unused_since: float | None = None
        self.pause = every if words and hasattr(signal, "sigtimedwait") else None
        self._due = time.monotonic() + every
        self.running = 0

    def look(self) -> None:
        if self.pause is None or self.running or time.monotonic() < self._due:
            return
        self.pause = min(2 * self.pause, self._most)
        self._begun = time.monotonic()
        self._due = self._begun + self.pause
        with contextlib.suppress(OSError):
            self.running = os.fork()
            if self.running == 0:
                _start_apart(self._words)

    def ended(self, status: int) -> float:
        """Note the end of the command; return for how many seconds every reading was without use."""
        self.running = 0
        before, self._read_at = self._read_at, self._begun
        if os.waitstatus_to_exitcode(status) != _UNUSED:
            self._unused_since = None
            return 0.0
        if self._unused_since is None or self._begun - before > _LOOKED_AWAY:
            self._unused_since = self._begun
        return self._begun - self._unused_since

    def end(self) -> None:
        """Kill the running command: it is not a process of the job."""
        if self.running:
            _signal(self.running, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.running, 0)


def _leave_the_log() -> None:
    """Close the job's log: a process that has it open for writing counts as a process of the job."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def _start_apart(words: list[bytes]) -> None:
    """Become a command with neither the job's log nor its signal handlers. Never returns."""
    try:
        _leave_the_log()
        os.setsid()
        for each in (*_NOT_FOR_US, *_WAITED_FOR):
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execv(words[0], words)
    finally:
        os._exit(126)


class _Watch:
    """Waits for the command to end, stops it on request, and checks the size of its log and the devices that
    it runs on."""

    def __init__(self, folder: str, command: int, given: _Command) -> None:
        self._folder, self._command, self._tie = folder, command, given.tie
        self._cap, self._look, self._why = _LOG_CAP.LogCap(given.cap), given.look, ""
        self._ended: int | None = None
        self._when = time.time()
        # Durations come from the monotonic clock, which nobody sets.
        self._began = self._over_at = time.monotonic()
        self._stop: int | None = None
        self._rest_told = self._limited = self._warned = False
        self._killed: set[int] = set()
        self._pause = _AGAIN

    def until_the_end(self) -> _End:
        """Wait until the job has ended."""
        self._watch_tie()
        self._start_limit()
        while not self._over():
            number = self._next_signal()
            if number == signal.SIGTERM or (number == signal.SIGIO and self._untied()):
                self._begin_to_stop(_asked(self._folder))
            elif number == signal.SIGIO:
                # The command, which has waited for its devices, has them.
                self._start_limit()
            elif number == signal.SIGALRM and self._stop is None:
                self._begin_to_stop((signal.SIGTERM, _GRACE, '"its time limit was over"'))
            elif number == signal.SIGALRM:
                self._kill()
        self._cap.look()
        self._look.end()
        ended = self._ended or 0
        status = str(os.WEXITSTATUS(ended)) if os.WIFEXITED(ended) else "null"
        by = str(os.WTERMSIG(ended)) if os.WIFSIGNALED(ended) else "null"
        how = "stopped" if self._stop else f"ended with status {status}"
        # A job that waits leaves there why it does not become its command.
        self._why = self._why or _asked(self._folder)[2]
        return _End(
            f'{{"ended": {self._when}, "status": {status}, "signal": {by}, "stop": {self._stop or "null"},'
            f' "why": {self._why or "null"},'
            f' "killed": {len(self._killed)}, "left": {len(_descendants())},'
            f' "peak_process_memory": {_peak_process_memory()}}}',
            how if self._stop or by == "null" else f"ended by signal {by}",
            self._over_at - self._began,
        )

    def _next_signal(self) -> int | None:
        """Wait for the next signal; None when the pause passed without one and the checks were due."""
        pauses = [each.pause for each in (self._cap, self._look) if each.pause is not None]
        if not pauses:
            return signal.sigwait(_WAITED_FOR)
        came = signal.sigtimedwait(_WAITED_FOR, min(pauses))
        if came is None:
            self._cap.look()
            self._look.look()
            return None
        return came.si_signo

    def _start_limit(self) -> None:
        """Start the time of the file "limit", where there is one. A request to stop has its own time."""
        if self._limited or self._stop is not None:
            return
        with contextlib.suppress(OSError, ValueError), open(f"{self._folder}/limit", "rb") as file:  # noqa: PTH123
            signal.setitimer(signal.ITIMER_REAL, float(file.read(30)))
            self._limited = True

    def _watch_tie(self) -> None:
        """Request SIGIO for when the other end of the pipe is closed (O_ASYNC, fcntl(2))."""
        if self._tie is None:
            return
        import fcntl

        fcntl.fcntl(self._tie, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._tie, fcntl.F_SETFL, fcntl.fcntl(self._tie, fcntl.F_GETFL) | os.O_ASYNC)
        # The pipe may have been closed before the request.
        os.kill(os.getpid(), signal.SIGIO)

    def _untied(self) -> bool:
        """Whether the process that the job is tied to has ended; true only once."""
        import select

        if self._tie is None:
            return False
        poll = select.poll()
        poll.register(self._tie)
        if not poll.poll(0):
            return False
        # Nobody writes into the pipe: it becomes readable only at its end.
        os.close(self._tie)
        self._tie = None
        return True

    def _over(self) -> bool:
        some_are_left = self._collect()
        if self._ended is None:
            return False
        if self._stop is None or not some_are_left:
            return True
        if not self._rest_told:
            self._rest_told = True
            for pid in _descendants():
                _signal(pid, self._stop)
        return False

    def _collect(self) -> bool:
        """Reap the children that have ended. Returns whether any are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._look.running:
                self._release(self._look.ended(status))
            if pid == self._command:
                self._ended, self._when, self._over_at = status, time.time(), time.monotonic()

    def _begin_to_stop(self, asked: tuple[int, float, str]) -> None:
        """Send the requested signal, and start the grace period; a later request replaces both."""
        self._stop, grace, self._why = asked
        self._rest_told = False
        if self._ended is None:
            # The pid stays the command's until the command has been reaped.
            _signal(-self._command, self._stop)
            # A command that is suspended cannot act on a signal.
            _signal(-self._command, signal.SIGCONT)
        # A time of zero would switch the alarm off.
        signal.setitimer(signal.ITIMER_REAL, max(grace, 0.001))

    def _release(self, unused: float) -> None:
        """Warn of a job that has not used its devices for so many seconds, and stop it some time later."""
        limit = self._look.idle
        if not limit or self._stop is not None or self._ended is not None:
            return
        left = limit - unused
        if left > min(_WARNING, limit / 2):
            if self._warned:
                self._warned = False
                with contextlib.suppress(OSError):
                    os.unlink(f"{self._folder}/idle.json")  # noqa: PTH108 - pathlib would be a megabyte
        elif self._warned and left <= 0:
            self._begin_to_stop(
                (signal.SIGTERM, _GRACE, f'"its devices were idle for {_SPAN.duration(unused)}"')
            )
        elif not self._warned:
            self._warned = True
            idle, rest = map(_SPAN.duration, (unused, left))
            how = f"idle for {idle}, stopped in {rest} unless it uses its devices"
            with contextlib.suppress(OSError):
                _write(self._folder, "idle.json", f'{{"idle_release_at": {time.time() + left}}}')
                os.write(1, f"\ngputui: {how}\n".encode())
            _notify(self._folder, how)

    def _kill(self) -> None:
        found = _descendants()
        self._killed |= found - {self._look.running}
        for pid in found:
            _signal(pid, signal.SIGKILL)
        if self._ended is None:
            self._killed.add(self._command)
            _signal(-self._command, signal.SIGKILL)
        signal.setitimer(signal.ITIMER_REAL, self._pause)
        self._pause = min(2 * self._pause, _AT_MOST)


def _peak_process_memory() -> int:
    """The peak RAM in bytes of any single process that has been reaped (getrusage(2)).

    It costs nothing while the job runs. No such figure exists for all processes together, unless the job has
    its own cgroup. It is never less than our own RAM, because each process begins as a copy of this one, nor
    than that of a device check, 40 MB, where there are any (`_Look`).
    """
    import resource

    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _notify(folder: str, how: str) -> None:
    """Start the command of the record's file "notify" with "{message}" replaced, which says how the job is.

    We do not wait for it, because a process that waits for the job's end waits for ours. A separate process
    kills the command when it hangs."""
    try:
        with open(f"{folder}/notify", "rb") as file:  # noqa: PTH123
            title, *words = file.read().split(b"\0")[:-1]
    except (OSError, ValueError):
        return
    job = os.fsencode(os.path.basename(folder))  # noqa: PTH119
    message = b"gputui: job %s %s%s" % (job, b"(%s) " % title if title else b"", how.encode())
    argv = [word.replace(b"{message}", message) for word in words]
    if not argv or os.fork():
        return
    try:
        _leave_the_log()
        command = os.fork()
        if command == 0:
            _start_apart(argv)
        if signal.sigtimedwait((signal.SIGCHLD,), _NOTIFY_TIME) is None:
            try:
                os.killpg(command, signal.SIGKILL)
            except ProcessLookupError:
                # The command has not made its session yet.
                os.kill(command, signal.SIGKILL)
    finally:
        os._exit(0)


def _asked(folder: str) -> tuple[int, float, str]:
    """The requested signal and seconds of grace (SIGTERM for a plain kill(1)), and the reason as JSON, ""
    where a person has asked."""
    try:
        handle = os.open(f"{folder}/stop", os.O_RDONLY)
        number, grace, *why = os.read(handle, 300).decode("ascii", "ignore").strip().split(" ", 2)
        os.close(handle)
        plain = "".join(each for each in "".join(why) if each.isprintable() and each not in '"\\')
        return int(number), float(grace), f'"{plain}"' if plain else ""
    except (OSError, ValueError):
        return signal.SIGTERM, _GRACE, ""


def _descendants() -> set[int]:
    """The pids of the running descendants of this process."""
    return {*_PROCESSES.family({os.getpid()})} - {os.getpid()}


def _signal(pid: int, number: int) -> None:
    # The process may have ended, or run as another user by now (sudo).
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    main()
