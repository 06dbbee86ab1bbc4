"""RDMA network devices from the kernel's PCI tree: their names, and their links to the GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import sysfs
from gputui.inventory.link import LinkMatrix
from gputui.inventory.topology import Nic
from gputui.system.rdma import Rdma
from gputui.system.root import Root
from table_tests import each_row

HOST, PORT, UP = "pci0000:15", "0000:15:01.0", "0000:16:00.0"
SWITCH = (HOST, PORT, UP)
"""A PCIe switch in a slot of a host bridge, up to its upstream port."""
GPU = "0000:18:00.0"
GPU_PATH = (*SWITCH, "0000:17:00.0", GPU)


class Tree:
    """A /sys made by hand: a device hangs under its host bridge and every named bridge."""

    def __init__(self, root: Path, nodes: int = 2) -> None:
        self.machine, self.root = Root(str(root)), root / "sys"
        for node in range(nodes):
            (self.root / "devices" / "system" / "node" / f"node{node}").mkdir(parents=True)

    def hang(self, *path: str, node: int | str | bytes | None = 0) -> Path:
        """Add a PCI device, with this content of its file `numa_node`; None: there is no such file."""
        folder = (self.root / "devices").joinpath(*path)
        folder.mkdir(parents=True, exist_ok=True)
        if node is not None:
            text = node if isinstance(node, bytes) else f"{node}\n".encode()
            (folder / "numa_node").write_bytes(text)
        self._link(self.root / "bus" / "pci" / "devices" / path[-1], folder)
        return folder

    def nic(self, name: str, *path: str, node: int | str | bytes | None = 0) -> None:
        """Add an RDMA device on a PCI device, as the kernel shows it: by symbolic links."""
        parent = self.hang(*path, node=node)
        shown = parent / "infiniband" / name
        shown.mkdir(parents=True)
        self._link(shown / "device", parent)
        self._link(self.root / "class" / "infiniband" / name, shown)

    def virtual(self, name: str, device: Path | None) -> None:
        """Add an RDMA device whose `device` leads somewhere else, or nowhere."""
        shown = self.root / "devices" / "virtual" / "infiniband" / name
        shown.mkdir(parents=True)
        self._link(self.root / "class" / "infiniband" / name, shown)
        if device is not None:
            self._link(shown / "device", device)

    @staticmethod
    def _link(where: Path, to: Path) -> None:
        where.parent.mkdir(parents=True, exist_ok=True)
        if not where.is_symlink():
            where.symlink_to(os.path.relpath(to, where.parent))

    def links(self, *gpus: str | None) -> LinkMatrix:
        """The links for NVML's bus ids of the GPUs, in eight digits and capitals."""
        return Rdma(self.machine).links(
            [gpu and f"{gpu.split(':', 1)[0]:>08}:{gpu[-7:]}".upper() for gpu in gpus]
        )

    def word(self, gpu: str = GPU) -> str | None:
        """The link that joins a GPU to the first network device."""
        return self.links(gpu)[0][0]

    def names(self) -> list[str]:
        return [nic.name for nic in Rdma(self.machine).nics()]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


# From PIX to SYS.

DEEPER = (*SWITCH, "0000:17:02.0", "0000:20:00.0")
"""A second switch in a port of the first."""
PATHS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "two ports of one switch": (GPU_PATH, (*SWITCH, "0000:17:01.0", "0000:19:00.0"), "PIX"),
    "two functions of one slot": (
        (HOST, PORT, GPU),
        (HOST, PORT, "0000:18:00.1"),
        "PIX",
    ),
    "a switch under the GPU's switch": (GPU_PATH, (*DEEPER, "0000:21:00.0", "0000:22:00.0"), "PXB"),
    "a bridge in the slot next to the GPU": (
        GPU_PATH,
        (*SWITCH, "0000:17:01.0", "0000:19:00.0", "0000:1a:00.0"),
        "PXB",
    ),
    "two switches under one": (
        (*SWITCH, "0000:17:00.0", "0000:30:00.0", "0000:31:00.0", "0000:18:00.0"),
        (*DEEPER, "0000:21:00.0", "0000:22:00.0"),
        "PXB",
    ),
    "three switches one under the other": (
        GPU_PATH,
        (*DEEPER, "0000:21:00.0", "0000:23:00.0", "0000:24:00.0", "0000:25:00.0"),
        "PXB",
    ),
    "a GPU deeper than the network device": (
        (*DEEPER, "0000:21:00.0", GPU),
        (*SWITCH, "0000:17:01.0", "0000:19:00.0"),
        "PXB",
    ),
    "two slots of one host bridge": (
        (HOST, PORT, GPU),
        (HOST, "0000:15:02.0", "0000:40:00.0"),
        "PHB",
    ),
    "two switches of one host bridge": (
        GPU_PATH,
        (HOST, "0000:15:02.0", "0000:40:00.0", "0000:41:00.0", "0000:42:00.0"),
        "PHB",
    ),
    "a switch and a slot of one host bridge": (GPU_PATH, (HOST, "0000:15:02.0", "0000:40:00.0"), "PHB"),
    "without bridges, as in a virtual machine": (
        ("pci0000:00", "0000:00:05.0"),
        ("pci0000:00", "0000:00:06.0"),
        "PHB",
    ),
    "two host bridges": (GPU_PATH, ("pci0000:48", "0000:48:01.0", "0000:49:00.0"), "NODE"),
    "two host bridges of other PCI domains": (
        ("pci0001:00", "0001:00:00.0", "0001:01:00.0"),
        ("pci0002:00", "0002:00:00.0", "0002:01:00.0"),
        "NODE",
    ),
    "the same numbers in another PCI domain": (
        ("pci0001:00", "0001:00:01.0", "0001:01:00.0"),
        ("pci0002:00", "0002:00:01.0", "0002:01:00.0"),
        "NODE",
    ),
    "one switch in another PCI domain": (
        ("pci0009:00", "0009:00:00.0", "0009:01:00.0", "0009:02:00.0", "0009:03:00.0"),
        ("pci0009:00", "0009:00:00.0", "0009:01:00.0", "0009:02:01.0", "0009:04:00.0"),
        "PIX",
    ),
    "one switch in a PCI domain of five digits": (
        ("pci10000:00", "10000:00:02.0", "10000:01:00.0", "10000:02:00.0", "10000:03:00.0"),
        ("pci10000:00", "10000:00:02.0", "10000:01:00.0", "10000:02:01.0", "10000:04:00.0"),
        "PIX",
    ),
    "two slots of one host bridge in a PCI domain of five digits": (
        ("pci10000:00", "10000:00:02.0", "10000:01:00.0"),
        ("pci10000:00", "10000:00:03.0", "10000:02:00.0"),
        "PHB",
    ),
    "behind ACPI's names, as on Azure": (
        ("LNXSYSTM:00", "LNXSYBUS:00", "PNP0A03:00", "pci0001:00", "0001:00:00.0"),
        ("LNXSYSTM:00", "LNXSYBUS:00", "ACPI0004:00", "VMBUS:00", "47505500", "pci7b2a:00", "7b2a:00:02.0"),
        "NODE",
    ),
    "under one host bridge behind ACPI's names": (
        ("LNXSYSTM:00", "PNP0A03:00", "pci0001:00", "0001:00:00.0"),
        ("LNXSYSTM:00", "PNP0A03:00", "pci0001:00", "0001:00:01.0"),
        "PHB",
    ),
}


@pytest.mark.parametrize(("gpu", "nic", "word"), PATHS.values(), ids=PATHS.keys())
def test_what_joins_them_follows_from_the_bridges_that_they_share(
    tree: Tree, gpu: tuple[str, ...], nic: tuple[str, ...], word: str
) -> None:
    tree.hang(*gpu)
    tree.nic("mlx5_0", *nic)
    assert tree.word(gpu[-1]) == word


@pytest.mark.parametrize(("gpu", "nic", "word"), PATHS.values(), ids=PATHS.keys())
def test_two_network_devices_are_joined_as_a_gpu_and_one_are(
    tree: Tree, gpu: tuple[str, ...], nic: tuple[str, ...], word: str
) -> None:
    tree.nic("mlx5_0", *gpu)
    tree.nic("mlx5_1", *nic)
    assert tree.links() == (("X", word), (word, "X"))


def test_between_nodes_there_is_the_way_between_sockets(tree: Tree) -> None:
    tree.hang(*GPU_PATH, node=0)
    tree.nic("mlx5_0", "pci0000:48", "0000:48:01.0", "0000:49:00.0", node=1)
    assert tree.word() == "SYS"


def test_under_one_host_bridge_the_node_does_not_matter(tree: Tree) -> None:
    """Some firmware sets a node for one device of a bridge and none for another."""
    tree.hang(*GPU_PATH, node=0)
    tree.nic("mlx5_0", HOST, "0000:15:02.0", "0000:40:00.0", node=1)
    tree.nic("mlx5_1", *SWITCH, "0000:17:01.0", "0000:19:00.0", node=-1)
    assert tree.links(GPU)[0] == ("PHB", "PIX")


def test_both_ports_of_a_nic_are_one_slot_and_far_alike(tree: Tree) -> None:
    tree.hang(*GPU_PATH)
    tree.hang("pci0000:48", "0000:48:01.0", "0000:50:00.0", node=1)
    for port in range(2):
        tree.nic(f"mlx5_{port}", *SWITCH, "0000:17:01.0", f"0000:19:00.{port}")
    assert tree.links(GPU, "0000:50:00.0") == (
        ("PIX", "PIX"),
        ("SYS", "SYS"),
        ("X", "PIX"),
        ("PIX", "X"),
    )


def test_a_virtual_function_is_where_its_card_is(tree: Tree) -> None:
    tree.hang(*GPU_PATH)
    tree.nic("mlx5_0", *SWITCH, "0000:17:01.0", "0000:19:00.0")
    tree.nic("mlx5_1", *SWITCH, "0000:17:01.0", "0000:19:02.5")
    assert tree.links(GPU) == (("PIX", "PIX"), ("X", "PIX"), ("PIX", "X"))


def test_a_card_with_a_bridge_of_its_own_is_behind_two_switches(tree: Tree) -> None:
    """A BlueField: its ports are in a switch on the card, which is in the box's switch."""
    tree.hang(*GPU_PATH)
    card = (*SWITCH, "0000:17:01.0", "0000:50:00.0", "0000:51:00.0")
    tree.nic("mlx5_0", *card, "0000:52:00.0")
    tree.nic("mlx5_1", *card, "0000:52:00.1")
    assert tree.links(GPU) == (("PXB", "PXB"), ("X", "PIX"), ("PIX", "X"))


def test_a_gpu_on_the_card_s_own_switch_is_next_to_it(tree: Tree) -> None:
    card = (HOST, PORT, "0000:50:00.0")
    tree.hang(*card, "0000:51:01.0", GPU)
    tree.nic("mlx5_0", *card, "0000:51:00.0", "0000:52:00.0")
    assert tree.word() == "PIX"


def test_eight_gpus_and_eight_nics_in_four_switches(tree: Tree) -> None:
    """The common box: a switch has two GPUs and two network devices; a socket has two switches."""
    gpus = []
    for n in range(8):
        bus, node = n // 2, n // 4
        host = f"pci000{bus}:00"
        path = (host, f"000{bus}:00:01.0", f"000{bus}:01:00.0")
        gpus.append(f"000{bus}:1{n}:00.0")
        tree.hang(*path, f"000{bus}:02:0{n % 2}.0", gpus[-1], node=node)
        tree.nic(f"mlx5_{n}", *path, f"000{bus}:02:0{2 + n % 2}.0", f"000{bus}:2{n}:00.0", node=node)
    found = tree.links(*gpus)
    for i, row in enumerate(found):
        for j, word in enumerate(row):
            i_th = i % 8
            near = "PIX" if i_th // 2 == j // 2 else "NODE" if i_th // 4 == j // 4 else "SYS"
            assert word == ("X" if i == 8 + j else near)


# NUMA nodes.

APART = ("pci0000:48", "0000:48:01.0", "0000:49:00.0")


@each_row(
    ("nodes", "gpu", "nic", "word"),
    [
        (1, 0, 0, "NODE"),
        (1, -1, -1, "NODE"),
        (0, -1, -1, "NODE"),
        (2, 0, 0, "NODE"),
        (2, 1, 1, "NODE"),
        (2, 0, 1, "SYS"),
        (2, -1, -1, "SYS"),
        (2, 0, -1, "SYS"),
        (2, -1, 1, "SYS"),
        (8, 6, 7, "SYS"),
    ],
)
def test_a_node_that_is_not_known_is_the_only_one_or_another(
    tmp_path: Path, nodes: int, gpu: int, nic: int, word: str
) -> None:
    tree = Tree(tmp_path, nodes)
    tree.hang(*GPU_PATH, node=gpu)
    tree.nic("mlx5_0", *APART, node=nic)
    assert tree.word() == word


@pytest.mark.parametrize(("gpu", "nic"), [(0, -1), (-1, 0)])
def test_on_a_machine_of_one_node_nothing_is_on_another(tmp_path: Path, gpu: int, nic: int) -> None:
    tree = Tree(tmp_path, nodes=1)
    tree.hang(*GPU_PATH, node=gpu)
    tree.nic("mlx5_0", *APART, node=nic)
    assert tree.word() == "NODE"


@pytest.mark.parametrize("text", [None, "", "none", "0x1", "1 2", b"\xff\xfe", "-1", "-7"], ids=repr)
def test_a_node_that_cannot_be_read_is_not_known(tree: Tree, text: Any) -> None:
    tree.nic("mlx5_0", *APART, node=text)
    assert Rdma(tree.machine).nics() == (Nic("mlx5_0", "00000000:49:00.0", None),)


def test_a_node_s_file_that_is_a_folder_is_not_known(tree: Tree) -> None:
    tree.nic("mlx5_0", *APART, node=None)
    (tree.root / "devices").joinpath(*APART, "numa_node").mkdir()
    assert Rdma(tree.machine).nics()[0].numa_node is None


# The kind of each device.


@pytest.mark.parametrize(
    ("path", "bus_id"),
    [
        (APART, "00000000:49:00.0"),
        ((*SWITCH, "0000:17:01.0", "0000:c1:00.1"), "00000000:C1:00.1"),
        (("pci7b2a:00", "7b2a:00:02.0"), "00007B2A:00:02.0"),
        (("pci10000:e0", "10000:e0:06.0", "10000:e1:00.0"), "00010000:E1:00.0"),
        (("pcideadbeef:00", "deadbeef:00:01.0"), "DEADBEEF:00:01.0"),
    ],
)
def test_bus_ids_are_in_the_form_of_nvml(tree: Tree, path: tuple[str, ...], bus_id: str) -> None:
    tree.nic("mlx5_0", *path, node=1)
    assert Rdma(tree.machine).nics() == (Nic("mlx5_0", bus_id, 1),)


def test_names_are_in_the_order_of_their_numbers(tree: Tree) -> None:
    names = [
        *("bnxt_re0", "bnxt_re10", "ibp24s0", "ibp154s0", "ibp154s0f1", "mlx4_0"),
        *("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_9", "mlx5_10", "mlx5_11", "mlx5_bond_0", "rocep1s0"),
    ]
    for place, name in enumerate(sorted(names)):
        tree.nic(name, "pci0000:48", "0000:48:01.0", f"0000:{place + 0x50:02x}:00.0")
    assert sorted(tree.names()) == sorted(names)
    assert tree.names() == names


def test_columns_are_in_the_order_of_the_names(tree: Tree) -> None:
    tree.hang(*GPU_PATH)
    tree.nic("mlx5_10", *APART, node=1)
    tree.nic("mlx5_9", *SWITCH, "0000:17:01.0", "0000:19:00.0")
    assert tree.names() == ["mlx5_9", "mlx5_10"]
    assert tree.links(GPU)[0] == ("PIX", "SYS")


# Entries that are no network device, and facts that cannot be found.


def test_a_machine_without_rdma_has_no_nics(tree: Tree) -> None:
    tree.hang(*GPU_PATH)
    assert Rdma(tree.machine).nics() == ()
    assert tree.links(GPU) == ()
    (tree.root / "class" / "infiniband").mkdir(parents=True)
    assert tree.links(GPU) == ()


def test_no_sysfs_at_all_is_no_trouble(tmp_path: Path) -> None:
    nowhere = Rdma(Root(str(tmp_path / "none")))
    assert (nowhere.nics(), nowhere.links(["00000000:18:00.0"])) == ((), ())


def test_devices_that_are_software_are_left_out(tree: Tree) -> None:
    tree.hang(*GPU_PATH)
    tree.nic("mlx5_0", *APART)
    tree.virtual("rxe0", None)
    bridge = tree.root / "devices" / "virtual" / "net" / "br0"
    bridge.mkdir(parents=True)
    tree.virtual("siw0", bridge)
    sysfs.add_software_nic(tree.root, "rxe1")
    assert tree.names() == ["mlx5_0"]
    assert tree.links(GPU) == (("NODE",), ("X",))


def test_devices_that_hang_in_no_pci_slot_are_left_out(tree: Tree) -> None:
    usb = (tree.root / "devices").joinpath(*APART, "usb1", "1-1")
    usb.mkdir(parents=True)
    tree.virtual("odd0", usb)
    tree.virtual("gone0", tree.root / "devices" / "pci0000:ff" / "0000:ff:00.0")
    (tree.root / "class" / "infiniband" / "abi_version").write_text("1\n")
    assert tree.names() == []


def test_a_gpu_that_is_not_in_the_tree_has_no_known_links(tree: Tree) -> None:
    tree.hang(*GPU_PATH)
    tree.nic("mlx5_0", *SWITCH, "0000:17:01.0", "0000:19:00.0")
    assert tree.links("0000:77:00.0", None, GPU) == ((None,), (None,), ("PIX",), ("X",))


def test_a_container_that_hides_network_devices_has_none(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where AppArmor masks /sys: reading it is denied, also to root."""
    tree.nic("mlx5_0", *APART)
    scandir = os.scandir

    def denied(path: str) -> Any:
        if "infiniband" in path:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert Rdma(tree.machine).nics() == ()
