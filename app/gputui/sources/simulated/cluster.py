"""A simulated Slurm cluster, for the demo: nodes that are free, in use and drained, and one's own jobs."""

from __future__ import annotations

from gputui.sources.slurm.cluster import Cluster, Gpus, Job, Node, Partition

SIMULATED = Cluster(
    nodes=(
        Node("dgx-1", ("MIXED",), "", ("train", "long"), (Gpus("h100", 8, 6, (0, 1, 2, 3, 4, 5)),)),
        Node("dgx-2", ("ALLOCATED",), "", ("train", "long"), (Gpus("h100", 8, 8, tuple(range(8))),)),
        Node("dgx-3", ("IDLE",), "", ("train", "long"), (Gpus("h100", 8, 0, ()),)),
        Node("dgx-4", ("IDLE", "DRAIN"), "Xid 79 on GPU 3", ("train", "long"), (Gpus("h100", 8, 0, ()),)),
        Node(
            "mix-1", ("MIXED",), "", ("small",), (Gpus("a100", 4, 1, (0,)), Gpus("l40s", 4, 4, (4, 5, 6, 7)))
        ),
        Node("mix-2", ("DOWN", "NOT_RESPONDING"), "", ("small",), (Gpus("a100", 4, 0, ()),)),
    ),
    partitions=(
        Partition("train", default=True, limit="2-00:00:00"),
        Partition("long", limit="14-00:00:00"),
        Partition("small", limit="8:00:00"),
    ),
    jobs=(
        Job(
            "48213",
            "llama-sft",
            "RUNNING",
            "train",
            ("dgx-1",),
            2,
            "",
            (("dgx-1", (4, 5)),),
        ),
        Job("48230", "sweep", "PENDING", "train", (), 8, "Priority"),
    ),
)
