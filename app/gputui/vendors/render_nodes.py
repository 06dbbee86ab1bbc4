"""Containers that are given devices by their render nodes, the files under /dev/dri."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.device import Device
from gputui.vendors.vendor import Containers

_ALL = "/dev/dri"


class RenderNodes(Containers):
    """The render nodes themselves; all of them where the devices' own are not enough.

    shared  the files that every device needs besides
    groups  the groups whose members may open the files
    """

    by_uuid = False
    shared: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("render",)

    def by_node(self, devices: Sequence[Device]) -> bool:
        """Return whether a container can be given the nodes of these devices only."""
        return all(device.render for device in devices)

    def docker(self, devices: Sequence[Device]) -> list[str]:
        own = [f"{_ALL}/{device.render}" for device in devices] if self.by_node(devices) else [_ALL]
        # A second device of the same card opens the same node.
        nodes = dict.fromkeys((*self.shared, *own))
        words = [word for node in nodes for word in ("--device", node)]
        return [*words, *(word for group in self.groups for word in ("--group-add", group))]

    podman = docker

    def gives_devices(self, option: str, value: str) -> bool:
        return option == "device" and value.partition(":")[0].startswith((*self.shared, _ALL))
