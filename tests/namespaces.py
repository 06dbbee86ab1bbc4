"""Machines for tests: network namespaces with addresses of their own on one cable, where root may make them.

Elsewhere a machine is a port of the loopback.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from dataclasses import dataclass

from ssh_boxes import Place, free_port

IP, NSENTER = (
    shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"),
    shutil.which("nsenter"),
)
_numbers = itertools.count()


class _CannotMakeError(Exception):
    """No namespace can be made here."""


@dataclass(frozen=True)
class Machine:
    """`words` run a program in it; its sshd listens at `listens` and is reached at each of `places`."""

    words: tuple[str, ...]
    listens: Place
    places: tuple[Place, ...]
    interface: str


class Network:
    """Machines that see one another; a namespace sees nothing else. `close` removes them."""

    def __init__(self) -> None:
        self._made: list[str] = []
        self._last = 0
        self._switch = ""
        try:
            self._switch = self._namespace()
            _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "switch", "up")
            self._joined(self._namespace(), [])
        except _CannotMakeError:
            self.close()
            self._switch = ""

    def machine(self, addresses: int = 1) -> Machine:
        """A machine with this number of addresses."""
        if not self._switch:
            place = Place("127.0.0.1", free_port())
            return Machine((), place, (place,) * addresses, "lo")
        places = tuple(
            Place(f"10.99.{number // 250}.{number % 250 + 1}", 22)
            for number in range(self._last, self._last + addresses)
        )
        self._last += addresses
        name = self._namespace()
        self._joined(name, [place.address for place in places])
        assert NSENTER is not None
        return Machine((NSENTER, f"--net=/run/netns/{name}"), Place("0.0.0.0", 22), places, "eth0")

    def close(self) -> None:
        """Remove the namespaces; a program that still runs in one keeps it until the program ends."""
        for name in self._made:
            subprocess.run([str(IP), "netns", "delete", name], check=False, capture_output=True)

    def _joined(self, name: str, addresses: list[str]) -> None:
        """Connect a namespace to the cable."""
        _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", self._switch)
        _ip("-n", self._switch, "link", "set", name, "master", "switch", "up")
        for address in addresses:
            _ip("-n", name, "address", "add", f"{address}/16", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")

    def _namespace(self) -> str:
        # At most 15 characters: its end of the cable has this name, too.
        name = f"gt{os.getpid() % 10**7}n{next(_numbers)}"
        _ip("netns", "add", name)
        self._made.append(name)
        _ip("-n", name, "link", "set", "lo", "up")
        return name


def _ip(*words: str) -> None:
    """Run `ip`. Raises _CannotMakeError."""
    if IP is None or NSENTER is None:
        raise _CannotMakeError("no ip (iproute2) or no nsenter")
    done = subprocess.run([IP, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise _CannotMakeError(f"{' '.join(words)}: {done.stderr.strip()}")
