"""The named boxes of `--demo` and of the tests. To add one: describe it here, and add it to `BOXES`.

Users and commands are invented; sizes, clocks, limits and links are those of the real products.
"""

from __future__ import annotations

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.link import SELF, XGMI
from gputui.sources.simulated.models import (
    A100,
    ARC_B580,
    GAUDI_3,
    H100,
    M3_MAX,
    MAX_1550_TILE,
    MI300X,
    MI300X_PARTITION,
    NO_NUMA,
    RTX_3090_GPU,
    RTX_4090_GPU,
    UHD,
    V100,
)
from gputui.sources.simulated.spec import (
    Box,
    Gpu,
    Mig,
    OwnJob,
    Task,
    Waiting,
    bridged,
    rows,
    sockets,
    uniform,
    weights,
)

DEFAULT = "shared"

_HGX_BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")


def _gpus(model: Gpu, buses: tuple[str, ...], per_node: int) -> tuple[Gpu, ...]:
    return tuple(
        replace(
            model, bus=f"{bus}:00.0", numa=None if "numa_node" in model.unsupported else place // per_node
        )
        for place, bus in enumerate(buses)
    )


def _train(
    devices: str, user: str, command: str, pid: int, memory: int, load: int = 96, age: float = 11_000
) -> Task:
    return Task(
        devices=tuple(devices.split()), user=user, command=command, pid=pid, memory=memory, load=load, age=age
    )


DGX_H100 = Box(
    name="dgx-h100",
    about="8× H100 behind NVSwitches, nobody on it but one job that comes and goes",
    host="hopper",
    driver="550.54.15",
    cuda="12.4",
    gpus=_gpus(H100, _HGX_BUSES, 4),
    links=uniform(8, "NV18"),
    switched=True,
    tasks=(
        Task(
            devices=("6", "7"),
            user="mira",
            command="python finetune.py --config lora.yaml",
            pid=20114,
            memory=41_200,
            load=88,
            starts=6,
            ends=50,
            every=75,
        ),
    ),
)

DGX_1 = Box(
    name="dgx-1",
    about="8× V100 in a hybrid cube mesh: pairs with two links, with one, and with none",
    host="volta",
    driver="470.57.02",
    cuda="11.4",
    gpus=_gpus(V100, ("06", "07", "0A", "0B", "85", "86", "89", "8A"), 4),
    links=rows(
        """
        X    NV1  NV2  NV1  SYS  SYS  SYS  NV2
        NV1  X    NV1  NV2  SYS  SYS  NV2  SYS
        NV2  NV1  X    NV2  SYS  NV1  SYS  SYS
        NV1  NV2  NV2  X    NV1  SYS  SYS  SYS
        SYS  SYS  SYS  NV1  X    NV2  NV2  NV1
        SYS  SYS  NV1  SYS  NV2  X    NV1  NV2
        SYS  NV2  SYS  SYS  NV2  NV1  X    NV1
        NV2  SYS  SYS  SYS  NV1  NV2  NV1  X
        """
    ),
    tasks=(_train("0 3", "olek", "python -m pretrain.main --seed 3", 4411, 27_400),),
)

RTX_3090 = Box(
    name="rtx3090",
    about="4× RTX 3090, bridged in pairs",
    host="attic",
    driver="535.183.01",
    cuda="12.2",
    gpus=_gpus(RTX_3090_GPU, ("01", "21", "41", "61"), 4),
    links=bridged(sockets((4,), "PHB", "PHB"), "NV4", (0, 1), (2, 3)),
    pcie=uniform(4, "PHB"),
    tasks=(
        Task(
            devices=("0",),
            user="sam",
            command="/usr/lib/xorg/Xorg vt2",
            pid=1702,
            memory=312,
            load=2,
            swing=2,
            age=90_000,
            kind="graphics",
        ),
    ),
)

RTX_4090 = Box(
    name="rtx4090",
    about="8× RTX 4090 on two sockets, no NVLink",
    host="render-8",
    driver="560.35.03",
    cuda="12.6",
    gpus=(
        *_gpus(RTX_4090_GPU, ("01", "24", "41", "61"), 4),
        # A riser that is worn out.
        *(replace(gpu, numa=1) for gpu in _gpus(replace(RTX_4090_GPU, lanes=8), ("81",), 4)),
        *(replace(gpu, numa=1) for gpu in _gpus(RTX_4090_GPU, ("A1", "C1", "E1"), 4)),
    ),
    links=sockets((4, 4), "NODE", "SYS"),
    peers=False,
    tasks=(_train("1 2", "jun", "accelerate launch sft.py --bf16", 90331, 21_800, load=99),),
)

_SLICES = (Mig("3g.40gb", 40_192), Mig("2g.20gb", 19_968), Mig("1g.10gb", 9_728), Mig("1g.10gb", 9_728))

A100_MIG = Box(
    name="a100-mig",
    about="2× A100, the first divided into four MIG instances",
    host="slices",
    driver="535.129.03",
    cuda="12.2",
    gpus=(
        replace(A100, bus="07:00.0", numa=0, mig=_SLICES),
        replace(A100, bus="0F:00.0", numa=0),
    ),
    links=uniform(2, "NV12"),
    switched=True,
    tasks=(
        _train("0:0", "ines", "python eval.py --model ckpt/7b", 7012, 31_000),
        Task(
            devices=("0:2",),
            user="bo",
            command="jupyter-kernel",
            pid=7440,
            memory=2_300,
            load=0,
            starts=5,
            ends=25,
            every=40,
        ),
    ),
)

GB10 = Box(
    name="gb10",
    about="a GB10: GPU and CPU share one memory, which NVML does not report",
    host="spark",
    ram=122_571,
    driver="580.95.05",
    cuda="13.0",
    gpus=(
        Gpu(
            name="NVIDIA GB10",
            cores=6144,
            generation=5,
            memory=0,
            bus="0F:01.0",
            capability="12.1",
            power_limit=None,
            clock=2418,
            idle_power=4,
            unsupported=frozenset(
                {
                    "memory_total",
                    "memory_used",
                    "memory_free",
                    "power_limit",
                    "numa_node",
                }
            ),
        ),
    ),
    links=uniform(1, "X"),
    tasks=(
        Task(
            devices=("0",),
            user="ada",
            command="python chat.py",
            pid=3120,
            memory=41_200,
            load=64,
            starts=8,
            ends=30,
            every=45,
        ),
    ),
)

MIXED = Box(
    name="mixed",
    about="a workstation with a slow old card first in bus order and a fast one second",
    host="bench",
    driver="570.86.16",
    cuda="12.8",
    gpus=(
        Gpu(
            name="NVIDIA GeForce GTX 1080",
            cores=2560,
            generation=3,
            memory=8192,
            bus="01:00.0",
            capability="6.1",
            power_limit=180,
            clock=1733,
            idle_power=9,
            reserve=0,
            unsupported=NO_NUMA,
        ),
        replace(RTX_4090_GPU, bus="41:00.0", unsupported=NO_NUMA),
    ),
    links=uniform(2, "PHB"),
    tasks=(
        Task(
            devices=("0",),
            user="lee",
            command="/usr/bin/gnome-shell",
            pid=2290,
            memory=420,
            load=4,
            swing=3,
            age=40_000,
            kind="graphics",
        ),
    ),
)

SHARED = Box(
    name="shared",
    about="a busy shared box: six users on 8× H100, one of them you, and others in line",
    host="dgx-3",
    driver="550.54.15",
    cuda="12.4",
    gpus=_gpus(H100, _HGX_BUSES, 4),
    links=uniform(8, "NV18"),
    switched=True,
    tasks=(
        _train("0", "mira", "python train.py --model 7b --lr 3e-4", 31007, 67_700, age=10_900),
        replace(
            _train("1", "you", "python finetune.py --config sft.yaml", 31988, 20_100, load=58, age=2_280),
            claims=2.0,
            job="m6u5",
        ),
        Task(
            devices=("2",),
            user="jun",
            command="python notebook-kernel.py",
            pid=29_001,
            memory=22_938,
            load=0,
            swing=0,
            hidden=True,
        ),
        replace(
            _train("3", "ines", "torchrun --nproc-per-node=1 dpo.py", 30110, 74_200, load=99, age=86_000),
            claims=2.0,
        ),
        Task(
            devices=("6",),
            user="bo",
            command="python serve.py --model 13b --port 8000",
            pid=28_412,
            memory=38_800,
            load=0,
            swing=0,
            age=26_000,
            container="docker 3f2a9c01d4e5",
            claims=40.0,
        ),
        Task(
            devices=("7",),
            user="olek",
            command="python -m sweep.run --trial 42",
            pid=32_440,
            memory=20_100,
            load=61,
            starter="bash sweep.sh",
            starts=7,
            ends=40,
            every=60,
            claims=3.0,
        ),
    ),
    line=(
        Waiting(user="ana", count=4, command="torchrun pretrain.py", age=2_900),
        Waiting(user="lee", count=1, command="python eval.py", devices=("6",), age=1_500),
        Waiting(user="kim", count=2, command="python sft.py", comes=12, leaves=48, every=60),
    ),
    jobs=(
        OwnJob(
            id="m6u5",
            title="python finetune.py --config sft.yaml",
            logs=tuple(
                f"epoch 3/10  step {1840 + 10 * step}/6200  loss {1.31 - 0.0004 * step:.4f}"
                for step in range(200)
            ),
            peak=20_100,
            devices=("1",),
            ran=2_280,
        ),
        OwnJob(
            id="k3f9",
            title="python finetune.py --config long.yaml",
            logs=("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.50 GiB.",),
            peak=77_900,
            devices=("1",),
            ran=190,
            ended=2_420,
            status=1,
            ram=11_900,
        ),
    ),
)

LOST = Box(
    name="lost",
    about="8× RTX 4090 of which one falls off the bus while you watch, and one needs a reset",
    host="render-2",
    driver="550.90.07",
    cuda="12.4",
    gpus=tuple(
        replace(gpu, fails_after={3: 2.0, 6: 0.0}.get(place), fault="reset" if place == 6 else "lost")
        for place, gpu in enumerate(RTX_4090.gpus)
    ),
    links=RTX_4090.links,
    tasks=(_train("0 1", "jun", "python train.py", 5120, 18_300),),
)

LAPTOP = Box(
    name="laptop",
    about="one laptop GPU",
    host="lap",
    driver="555.58.02",
    cuda="12.5",
    gpus=(
        Gpu(
            name="NVIDIA GeForce RTX 4070 Laptop GPU",
            cores=4608,
            memory=8188,
            bus="01:00.0",
            capability="8.9",
            power_limit=None,
            clock=2175,
            idle_power=3,
            reserve=0,
            unsupported=frozenset({"power_limit", "numa_node"}),
        ),
    ),
    links=uniform(1, "X"),
    tasks=(
        Task(
            devices=("0",),
            user="kim",
            command="/usr/lib/xorg/Xorg",
            pid=1211,
            memory=96,
            load=1,
            swing=1,
            kind="graphics",
        ),
    ),
)

WSL = Box(
    name="wsl",
    about="one laptop GPU in WSL2, where the driver lists no processes",
    host="lap-wsl",
    driver="566.36",
    cuda="12.7",
    gpus=(
        Gpu(
            name="NVIDIA GeForce RTX 4080 Laptop GPU",
            cores=7424,
            memory=12282,
            bus="01:00.0",
            capability="8.9",
            power_limit=None,
            clock=2280,
            idle_power=4,
            reserve=410,
            unsupported=frozenset({"power_limit", "numa_node", "processes"}),
        ),
    ),
    links=uniform(1, "X"),
    tasks=(
        Task(
            devices=("0",),
            user="kim",
            command="python train.py",
            pid=811,
            memory=6_200,
            load=70,
            starts=10,
            ends=40,
            every=60,
        ),
    ),
)

DGX_2 = Box(
    name="dgx-2",
    about="16× V100 behind NVSwitches",
    host="dgx-2",
    driver="535.161.08",
    cuda="12.2",
    gpus=_gpus(
        V100,
        ("34", "36", "39", "3B", "57", "59", "5C", "5E", "B7", "B9", "BC", "BE", "E0", "E2", "E5", "E7"),
        8,
    ),
    links=uniform(16, "NV6"),
    switched=True,
    tasks=(
        _train("0 1 2 3", "mira", "torchrun --standalone --nproc-per-node=4 pretrain.py", 61001, 30_100),
        _train("9", "bo", "python probe.py", 61990, 4_800, load=21, age=400),
        _train(
            "12 13", "ines", "deepspeed --include localhost:12,13 rm.py", 62550, 28_000, load=91, age=50_000
        ),
    ),
)

IDLE = Box(
    name="idle",
    about="2× RTX 3090 with nobody on them and nothing else",
    host="quiet",
    driver="535.183.01",
    cuda="12.2",
    gpus=RTX_3090.gpus[:2],
    links=bridged(uniform(2, "PHB"), "NV4", (0, 1)),
    pcie=uniform(2, "PHB"),
)

_MI300X_BUSES = ("05", "27", "47", "65", "85", "A7", "C7", "E5")

AMD = Box(
    name="amd",
    about="8× MI300X, each joined to each by XGMI, with two jobs of others",
    host="mi300x-1",
    driver="6.10.5",
    cuda=None,
    vendor="amd",
    uuid_digits=16,
    gpus=tuple(
        replace(gpu, render=128 + 8 * place) for place, gpu in enumerate(_gpus(MI300X, _MI300X_BUSES, 4))
    ),
    links=uniform(8, XGMI),
    weights=weights((8,), 15, 15),
    tasks=(
        replace(
            _train("0 1", "mira", "torchrun --nproc-per-node=2 pretrain.py", 41007, 151_300, age=10_900),
            claims=3.0,
        ),
        _train(
            "5", "bo", "python -m vllm.entrypoints.openai.api_server", 40221, 176_900, load=12, age=52_000
        ),
        Task(
            devices=("7",),
            user="ines",
            command="python eval.py --model ckpt/70b",
            pid=42_600,
            memory=64_000,
            load=74,
            starts=6,
            ends=40,
            every=60,
        ),
    ),
)

AMD_CPX = Box(
    name="amd-cpx",
    about="2× MI300X, each divided into eight partitions (CPX), which are devices of their own",
    host="mi300x-2",
    driver="6.10.5",
    cuda=None,
    vendor="amd",
    uuid_digits=16,
    gpus=tuple(
        replace(MI300X_PARTITION, bus=f"{bus}:00.0", numa=node, partition=part, render=128 + 8 * node + part)
        for node, bus in enumerate(("05", "85"))
        for part in range(8)
    ),
    links=uniform(16, XGMI),
    weights=weights((8, 8), 13, 41),
    pcie=tuple(
        tuple(SELF if i == j else None if i // 8 == j // 8 else "SYS" for j in range(16)) for i in range(16)
    ),
    tasks=(
        _train("0 1 2 3", "mira", "torchrun --nproc-per-node=4 sft.py", 51007, 19_100, age=4_000),
        Task(
            devices=("9",),
            user="jun",
            command="python notebook-kernel.py",
            pid=52_001,
            memory=6_100,
            load=0,
            starts=5,
            ends=30,
            every=50,
        ),
    ),
)

INTEL = Box(
    name="intel",
    about="2× Data Center GPU Max 1550, whose tiles are devices, joined by Xe links",
    host="pvc-1",
    driver="xe 6.14",
    cuda=None,
    vendor="intel",
    gpus=tuple(
        replace(
            MAX_1550_TILE,
            bus=f"{bus}:00.0",
            numa=card,
            partition=tile,
            render=128 + card,
        )
        for card, bus in enumerate(("4D", "A8"))
        for tile in range(2)
    ),
    links=rows(
        """
        X     MDF   XL*   XL16
        MDF   X     XL16  XL*
        XL*   XL16  X     MDF
        XL16  XL*   MDF   X
        """
    ),
    pcie=tuple(
        tuple(SELF if i == j else None if i // 2 == j // 2 else "SYS" for j in range(4)) for i in range(4)
    ),
    peers=None,
    tasks=(
        Task(
            devices=("2", "3"),
            user="mira",
            command="torchrun --nproc-per-node=2 pretrain.py",
            pid=61_007,
            memory=51_300,
            load=91,
            starts=8,
            ends=45,
            every=70,
        ),
    ),
)

GAUDI = Box(
    name="gaudi",
    about="8× Gaudi 3, which work together in aligned groups of 2, 4 and 8",
    host="hls-1",
    driver="1.22.1",
    cuda=None,
    vendor="gaudi",
    uuid_digits=8,
    uuid_prefix="01P4-HL3090A0-18-",
    gpus=tuple(
        replace(
            gpu,
            module=place,
            unsupported=gpu.unsupported - {"processes"} if place in (4, 5) else gpu.unsupported,
        )
        for place, gpu in enumerate(_gpus(GAUDI_3, ("19", "1A", "33", "34", "B3", "B4", "CC", "CD"), 4))
    ),
    links=uniform(8, None),
    peers=None,
    tasks=(
        _train("4 5", "you", "python gaudi_spawn.py --world_size 2 sft.py", 71_007, 98_000, load=88),
        Task(
            devices=("2",),
            user="bo",
            command="python serve.py",
            pid=72_001,
            memory=61_000,
            load=35,
            starts=5,
            ends=40,
            every=60,
        ),
    ),
)

APPLE = Box(
    name="apple",
    about="a Mac: one GPU, whose memory is the host's",
    host="studio",
    driver="Metal",
    cuda=None,
    ram=65_536,
    vendor="apple",
    gpus=(M3_MAX,),
    links=uniform(1, SELF),
    peers=None,
    tasks=(
        Task(
            devices=("0",),
            user="you",
            command="/System/Library/PrivateFrameworks/SkyLight.framework/Resources/WindowServer",
            pid=391,
            memory=None,
            load=6,
            swing=4,
            age=90_000,
            kind="graphics",
        ),
        Task(
            devices=("0",),
            user="you",
            command="python train.py --device mps",
            pid=8120,
            memory=21_000,
            load=70,
            starts=10,
            ends=35,
            every=55,
        ),
    ),
)

MIXED_VENDORS = Box(
    name="mixed-vendors",
    about="2× RTX 4090 and 2× Arc B580 in one workstation, and the processor's own GPU, which is not offered",
    host="rainbow",
    driver="570.86.16, xe 6.14",
    cuda="12.8",
    gpus=(
        *(replace(RTX_4090_GPU, bus=f"{bus}:00.0", unsupported=NO_NUMA) for bus in ("01", "21")),
        *(
            replace(ARC_B580, bus=f"{bus}:00.0", vendor="intel", render=129 + place)
            for place, bus in enumerate(("43", "63"))
        ),
        replace(UHD, vendor="intel", render=128),
    ),
    links=tuple(
        tuple(
            SELF if i == j else "PHB" if max(i, j) < 2 or (min(i, j) > 1 and max(i, j) < 4) else None
            for j in range(5)
        )
        for i in range(5)
    ),
    tasks=(
        Task(
            devices=("0",),
            user="jun",
            command="python train.py",
            pid=81_007,
            memory=18_200,
            load=90,
            starts=5,
            ends=40,
            every=60,
        ),
        Task(
            devices=("3",),
            user="lee",
            command="python xpu.py",
            pid=82_007,
            memory=7_100,
            load=60,
            starts=20,
            ends=50,
            every=70,
        ),
    ),
)

BOXES: dict[str, Box] = {
    box.name: box
    for box in (
        SHARED,
        DGX_H100,
        DGX_1,
        DGX_2,
        RTX_3090,
        RTX_4090,
        A100_MIG,
        GB10,
        MIXED,
        LOST,
        LAPTOP,
        WSL,
        IDLE,
        AMD,
        AMD_CPX,
        INTEL,
        GAUDI,
        APPLE,
        MIXED_VENDORS,
    )
}
"""Every named box, the default first."""
