"""A second vendor in one file: everything that another distribution brings to add one (CONTRIBUTING, "a
vendor").

It has its own list of visible devices, and no variable for their order. `ACME_DEVICES` is the number of
devices of this machine: without it there is no driver.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from gputui.inventory.device import Device
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.source import NoSourceError, Want
from gputui.system.root import Root
from gputui.vendors.vendor import Containers, Vendor
from gputui.vendors.visibility import Visibility

GIB = 1024**3


class AcmeSource:
    """`ACME_DEVICES` idle accelerators, joined by XGMI."""

    label = ""

    def open(self) -> None:
        if not os.environ.get("ACME_DEVICES"):
            raise NoSourceError("no Acme driver here")

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        self.open()
        count = int(os.environ["ACME_DEVICES"])
        links = tuple(tuple("X" if i == j else "XGMI1" for j in range(count)) for i in range(count))
        return Snapshot(Host("box", "7.1"), 1_700_000_000.0, tuple(map(accelerator, range(count))), links)

    def close(self) -> None:
        pass


def accelerator(index: int) -> Device:
    """An idle accelerator."""
    return Device(
        index=index,
        uuid=f"ACME-{index:04x}",
        name="Acme Rocket",
        vendor="acme",
        memory_total=64 * GIB,
        memory_used=0,
        memory_free=64 * GIB,
        utilization=0,
        processes=(),
    )


class AcmeVisibility(Visibility):
    variable = "ACME_VISIBLE_DEVICES"
    none = "off"
    none_in_words = "off"
    uuid_prefixes = ("ACME-",)
    reader = "Acme"


class AcmeContainers(Containers):
    def docker(self, devices: Sequence[Device]) -> list[str]:
        return [word for device in devices for word in ("--device", f"/dev/acme{device.index}")]

    podman = docker

    def gives_devices(self, option: str, value: str) -> bool:
        return option == "device" and value.startswith("/dev/acme")


class Acme(Vendor):
    name = "acme"
    title = "Acme"
    runtime = "Rocket"
    device_type = "rocket"
    uuid_prefixes = ("ACME-",)
    visibility = AcmeVisibility()
    containers = AcmeContainers()
    kubernetes = "acme.example/rocket"
    environment_hints = (("ACME_TRACE", "1", "a line for every kernel"),)
    backend = "acmecl"

    def source(self, root: Root) -> AcmeSource:
        return AcmeSource()


VENDOR = Acme()


def install(folder: Path) -> None:
    """Make `folder`, an entry of `sys.path`, contain an installed distribution with this vendor."""
    about = folder / "gputui_acme-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gputui-acme\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[gputui.vendors]\nacme = acme:VENDOR\n")
    (folder / "acme.py").write_text(Path(__file__).read_text())
