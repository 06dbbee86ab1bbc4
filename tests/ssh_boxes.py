"""Boxes for tests: one real sshd on the loopback, with keys and settings of its own, plays several boxes.

Each box is an alias of a private ssh configuration, which `ssh` on the tests' PATH reads; the daemon gives it
a home, a PATH and a login shell of its own.
"""

from __future__ import annotations

import grp
import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
SSH, KEYGEN = shutil.which("ssh"), shutil.which("ssh-keygen")
PROGRAMS = SSHD is not None and SSH is not None and KEYGEN is not None
_STARTS_WITHIN = 60.0


def gives_terminals() -> bool:
    """Whether an sshd of the tests can give its clients a terminal.

    It gives the terminal to the group "tty". Only root may do that, unless the kernel has done so already:
    where devpts is mounted without `gid=5` (some containers), the connection ends ("chown(/dev/pts/1, …)
    failed").
    """
    if os.geteuid() == 0:
        return True
    ends = os.openpty()
    try:
        return os.fstat(ends[1]).st_gid == grp.getgrnam("tty").gr_gid
    except KeyError:
        # Without such a group, sshd leaves the terminal as it is.
        return True
    finally:
        for end in ends:
            os.close(end)


class CannotStartError(Exception):
    """sshd does not start here; the message gives the reason."""


@dataclass(frozen=True)
class Place:
    """The address and port on which a daemon listens."""

    address: str
    port: int

    @property
    def known(self) -> str:
        """The place in the form of known_hosts."""
        return self.address if self.port == 22 else f"[{self.address}]:{self.port}"


class SshBoxes:
    """The daemon on the loopback, and the boxes that it plays; `listen` starts more daemons elsewhere.

    `path` goes before the PATH of the programs that connect; `client` are words before `ssh`; `key_exchange`
    is a cheap one by default, because both ends of each connection are on this machine: OpenSSH's own (None)
    takes 70 ms of CPU at each end.
    """

    def __init__(
        self, folder: Path, client: Sequence[str] = (), key_exchange: str | None = "curve25519-sha256"
    ) -> None:
        folder.mkdir(parents=True)
        self._key_exchange = key_exchange
        self.folder = folder
        self.config, self.known = folder / "config", folder / "known_hosts"
        for key in ("host", "user", "other"):
            subprocess.run(
                [str(KEYGEN), "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)],
                check=True,
                stdin=subprocess.DEVNULL,
            )
        self._host_key = _public(folder / "host.pub")
        (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
        self._write_configuration("")
        self.path = folder / "bin"
        self.path.mkdir()
        _script(self.path / "ssh", f'exec {shlex.join(client)} {SSH} -F {shlex.quote(str(self.config))} "$@"')
        _script(folder / "enter", _ENTER.format(folder=shlex.quote(str(folder))))
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._here = self.listen(Place("127.0.0.1", free_port()))

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with the tests' `ssh` first on the PATH."""
        return {**base, "PATH": f"{self.path}:{base['PATH']}"}

    def add(
        self,
        alias: str,
        environ: Mapping[str, str] | None = None,
        gputui: bool = True,
        shell: str = "/bin/sh",
        path: str = "/usr/bin:/bin",
        before: str = "",
        options: str = "",
        at: Place | None = None,
    ) -> Path:
        """Add a box of that name; return its home. `before` is the text of its login scripts; `options` are
        lines of the ssh configuration for it; `at` is the place of its daemon."""
        self._start_again_if_ended()
        home = self.folder / f"box-{alias}"
        (home / "bin").mkdir(parents=True)
        if gputui:
            _script(home / "bin" / "gputui", f'exec {shlex.quote(sys.executable)} -m gputui "$@"')
        given = {
            "HOME": str(home),
            "PATH": f"{home / 'bin'}:{path}",
            "LANG": "C.UTF-8",
            "BOX_SHELL": shell,
            **(environ or {}),
        }
        lines = [f"export {name}={shlex.quote(value)}" for name, value in given.items()]
        (self.folder / f"{alias}.env").write_text("\n".join([*lines, before, ""]))
        self._host(alias, at or self._here, f"  SetEnv GPUTUI_BOX={alias}\n{options}")
        return home

    def _start_again_if_ended(self) -> None:
        """Restart a daemon that another program has killed meanwhile (process ids are reused), so that no
        other test fails."""
        daemon = self._daemons[0]
        if daemon.poll() is not None:
            warnings.warn(f"sshd ended with {daemon.returncode}, and is started again", stacklevel=3)
            self.listen(self._here)
            self._daemons[0] = self._daemons.pop()

    def add_dead(self, alias: str) -> None:
        """Add a box on whose port no daemon listens."""
        self._host(alias, Place("127.0.0.1", free_port()))

    def add_hung(self, alias: str) -> socket.socket:
        """Add a box that accepts connections and sends nothing; the caller closes it."""
        listens = socket.create_server(("127.0.0.1", 0))
        self._host(alias, Place("127.0.0.1", listens.getsockname()[1]))
        return listens

    def add_changed(self, alias: str) -> None:
        """Add a box whose host key differs from the known one."""
        file = self.folder / f"{alias}.known"
        file.write_text(f"{self._here.known} {_public(self.folder / 'other.pub')}\n")
        self._host(alias, self._here, f"  UserKnownHostsFile {file}\n")

    def add_denied(self, alias: str) -> None:
        """Add a box that rejects our key."""
        self._host(alias, self._here, f"  IdentityFile {self.folder / 'other'}\n")

    def close(self) -> None:
        """Stop the daemons; the remaining connections end."""
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()

    def add_jump(self, alias: str, at: Place) -> None:
        """Add a jump host (ProxyJump)."""
        self._host(alias, at)

    def _host(self, alias: str, place: Place, more: str = "") -> None:
        # ssh uses the first value of each option: the options of one box come before the general ones.
        if "IdentityFile" not in more:
            # ssh uses all keys.
            more += f"  IdentityFile {self.folder / 'user'}\n"
        self._hosts = f"{self._hosts}Host {alias}\n  HostName {place.address}\n  Port {place.port}\n{more}"
        self._write_configuration(self._hosts)

    def _write_configuration(self, hosts: str) -> None:
        self._hosts = hosts
        key_exchange = f"  KexAlgorithms {self._key_exchange}\n" if self._key_exchange else ""
        self.config.write_text(
            f"{hosts}Host *\n{key_exchange}  IdentitiesOnly yes\n"
            f"  IdentityAgent none\n  UserKnownHostsFile {self.known}\n  GlobalKnownHostsFile /dev/null\n"
            "  StrictHostKeyChecking yes\n"
        )

    def listen(
        self,
        place: Place,
        inside: Sequence[str] = (),
        startups: str = "10:30:100",
        reached: Sequence[Place] = (),
    ) -> Place:
        """Start a daemon at `place`; return the place. Raises CannotStartError.

        `inside` are words before the program (a namespace), `startups` is its MaxStartups, `reached` are the
        places at which it is reached where it listens on all addresses.
        """
        if os.geteuid() == 0:
            # sshd separates its privileges in this folder, which is missing on a system that has never
            # started it.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        number = len(self._daemons)
        with self.known.open("a") as known:
            for each in dict.fromkeys(reached or [place]):
                known.write(f"{each.known} {self._host_key}\n")
        file = self.folder / f"sshd{number}.conf"
        file.write_text(
            f"Port {place.port}\nListenAddress {place.address}\nHostKey {self.folder / 'host'}\n"
            f"AuthorizedKeysFile {self.folder / 'authorized'}\nPidFile none\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
            f"AcceptEnv GPUTUI_BOX\nForceCommand exec {self.folder / 'enter'}\nMaxStartups {startups}\n"
            # The login shell starts the forced command by exec: a dash or fish that stayed as the parent
            # would die of a Ctrl-C, and turn a signal into a status. Bash reads its startup file first. This
            # HOME keeps it from the file of the person who runs the tests, which may take a second, or a lock
            # of all shells.
            f"SetEnv HOME={self.folder}\nPermitUserRC no\n"
        )
        log = self.log_of(number)
        log.touch()
        daemon = subprocess.Popen(
            [*inside, str(SSHD), "-D", "-f", str(file), "-E", str(log)], stdin=subprocess.DEVNULL
        )
        self._daemons.append(daemon)
        deadline = time.monotonic() + _STARTS_WITHIN
        while daemon.poll() is None and time.monotonic() < deadline:
            if "Server listening on" in log.read_text():
                return place
            time.sleep(0.01)
        daemon.kill()
        daemon.wait()
        raise CannotStartError(log.read_text() or "sshd did not start")

    def log_of(self, number: int) -> Path:
        """The log of the daemon of that number, in the order in which they were started."""
        return self.folder / f"sshd{number}.log"


_ENTER = """\
. {folder}/"$GPUTUI_BOX".env
unset GPUTUI_BOX
cd "$HOME" || exit 1
exec "$BOX_SHELL" -c "$SSH_ORIGINAL_COMMAND"
"""


def _script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _public(file: Path) -> str:
    kind, key = file.read_text().split()[:2]
    return f"{kind} {key}"


def free_port() -> int:
    """A port of the loopback on which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


def system_programs(tmp_path: Path) -> str:
    """A folder with the programs that a bare system has, and no Python."""
    folder = tmp_path / "system"
    folder.mkdir(exist_ok=True)
    for name in ("sh", "cat", "env", "head", "sleep", "mkdir", "rm", "printf", "true"):
        found = shutil.which(name)
        if found and not (folder / name).exists():
            (folder / name).symlink_to(found)
    return str(folder)
