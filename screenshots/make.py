"""Makes the pictures in this folder from simulated boxes: `python screenshots/make.py [NAME…]`.

Each picture is the real program, driven by key presses, at a fixed moment of a demo box, so that the same
code always gives the same picture.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.settings import ScreenSettings
from gputui.checking.answer import Driver, Framework, Seen, SeenDevice
from gputui.checking.report import Report, Variable
from gputui.cli.screen import comparison
from gputui.inventory.job import Job, JobDevice
from gputui.inventory.matrix_text import Printed, read
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality
from gputui.jobs.experiments import store
from gputui.jobs.experiments.axes import Axis
from gputui.jobs.experiments.record import Experiment, Row, Run
from gputui.jobs.experiments.request import ExperimentRequest
from gputui.jobs.process_tree import identity, own_scope
from gputui.jobs.record import write_finished, write_given
from gputui.launching.launch import Launch
from gputui.launching.launch_options import AUTO, LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.sampler import Sampler
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.printed import box_of
from gputui.sources.simulated.source import SimulatedSource
from gputui.sources.simulated.spec import Box, sockets
from gputui.sources.source import Want
from gputui.tui.app import GputuiApp
from gputui.tui.app_state import AppState
from gputui.tui.messages import NewReading
from gputui.tui.readings import Mailbox, Reading
from gputui.tui.screens import check
from gputui.tui.screens.main import MainScreen
from gputui.tui.screens.palette import PaletteScreen
from gputui.vendors.registry import vendor_named

HERE = Path(__file__).parent
_EVERYTHING = Want.ALL | Want.DETAILS | Want.HOST
NOON = 1_767_268_920.0
"""When the pictures are taken (epoch seconds)."""


@dataclass(frozen=True)
class Picture:
    """A picture: its file's name, the box, how long it has been watched, what was pressed."""

    name: str
    box: str | Box
    size: tuple[int, int]
    keys: tuple[str, ...] = ()
    watched: int = 0
    command: tuple[str, ...] = ("python", "train.py", "--lr", "3e-4")
    theme: str = "dark"
    launcher: str = AUTO


TOPOLOGIES = HERE.parent / "tests" / "data" / "topologies"


def _printed(name: str) -> Box:
    """The box of a recorded matrix."""
    return box_of(read((TOPOLOGIES / f"{name}.txt").read_text()), name.split("_")[0])


def _made(name: str, sizes: tuple[int, ...], inside: str, across: str) -> Box:
    """A box of groups of GPUs, each on a NUMA node of its own."""
    links = sockets(sizes, inside, across)
    places = tuple(Locality((node,), (node,)) for node, size in enumerate(sizes) for _ in range(size))
    return box_of(Printed(tuple(f"GPU{n}" for n in range(sum(sizes))), links, places), name)


_SIXTEEN = _made("pcie16", (4, 4, 4, 4), "PIX", "SYS")
_SEVENTY_TWO = _made("nvl72", (36, 36), "NV18", "SYS")

_SIZES = ((80, 24), (130, 40), (200, 60))
_CHOSEN = ("4", "5")
"""Two free GPUs of the box "shared"."""

_SCREENS: dict[str, tuple[str, ...]] = {
    "main": (),
    "check": ("@check",),
    "experiments": ("D",),
    "device": ("right",),
    "export": ("@export", *["down"] * 4),
    "help": ("question_mark",),
    "jobs": ("D",),
    "launch": ("@launch_page", *["down"] * 5),
    "messages": ("b", "@order", "@messages"),
    "nodes": ("@nodes", "down", "b", "b"),
    "nodes-jobs": ("@nodes", "D"),
    "nodes-slurm": ("@nodes", "end", "up", "up", "4"),
    "people": ("@people",),
    "processes": ("p", "tab"),
    "queue": ("@queue",),
    "settings": ("@settings",),
    "timelines": ("@timelines",),
    "topology": ("t",),
}
"""What opens each screen: keys, and actions of the main screen ("@export")."""

_TRAINING = (
    *("torchrun", "train.py", "--model_name_or_path", "Llama-2-7b", "--bf16"),
    *("--per_device_train_batch_size", "1"),
)
_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
"""The config.json of Llama-2-7b."""

PICTURES = (
    *(
        Picture(f"{name}-{size[0]}x{size[1]}", "shared", size, (*_CHOSEN, *keys), 200, launcher="torchrun")
        for name, keys in _SCREENS.items()
        for size in _SIZES
    ),
    *(
        Picture(f"plan-{size[0]}x{size[1]}", "dgx-h100", size, ("@plan", "plus", "plus"), 5, _TRAINING)
        for size in _SIZES
    ),
    Picture("confirm-130x40", "shared", (130, 40), ("3", "5", "enter"), 200, ("sh", "train.sh")),
    Picture("sixteen-80x24", "dgx-2", (80, 24), ("4", "5", "6", "7"), 90, launcher="torchrun"),
    Picture("main-60x15", "shared", (60, 15), (), 20),
    Picture("mig-80x24", "a100-mig", (80, 24), ("down", "down", "space"), 20),
    Picture("lost-80x24", "lost", (80, 24), ("4", "5"), 20),
    Picture("cpu-only-80x24", "idle", (80, 24), ("@cpu",), 5),
    Picture("edit-80x24", "shared", (80, 24), ("5", "e"), 75),
    Picture(
        "topology-8-80x24", _printed("titanv_8gpu_pix_phb_sys"), (80, 24), ("@ask", "4", "enter", "t"), 5
    ),
    Picture("topology-16-80x24", _SIXTEEN, (80, 24), ("@ask", "4", "enter", "t", "right", "right"), 5),
    Picture("topology-72-130x40", _SEVENTY_TWO, (130, 40), ("@ask", "8", "enter", "t"), 5),
    Picture("tree-80x24", _printed("v100_dgx1_hybrid_cube_mesh_mlx5"), (80, 24), ("b", "b", "t", "tab"), 5),
    Picture("light-130x40", "rtx4090", (130, 40), ("4", "5"), 120, theme="light"),
    Picture("ansi-80x24", "shared", (80, 24), ("5", "4"), 75, theme="ansi"),
)


class _Clock:
    """Seconds since the epoch, as the picture has it."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


LOG = b"""loading shards: 100%|##########| 12/12 [00:41<00:00]
step 100  loss 2.41  lr 3.0e-04  41.2k tok/s
step 200  loss 2.17  lr 3.0e-04  41.5k tok/s
\repoch 1:  12%|#2        | 214/1780 [09:12<1:07:21]\repoch 1:  13%|#3        | 231/1780 [09:56<1:06:40]"""


def _jobs(state: Path, uuids: dict[int, str]) -> None:
    """Records of jobs as they are after some hours: one runs (this process), one waits, two have ended."""
    us, scope = identity(os.getpid()), own_scope()
    devices = tuple(JobDevice(index, uuids[index], "H100") for index in (1,))
    for name, title, argv, on, ago, facts in (
        ("m6u5", None, ("python", "finetune.py", "--config", "sft.yaml"), devices, 2280.0, {}),
        ("p7d2", "sweep", ("python", "sweep.py"), (), 300.0, {"waits": 4}),
        ("c4m8", None, ("python", "eval.py", "--split", "test"), devices[:1], 9000.0, {"status": 0}),
        ("k3f9", None, ("python", "finetune.py", "--config", "long.yaml"), devices, 3000.0, {"status": 1}),
    ):
        folder = state / "gputui" / "jobs" / name
        folder.mkdir(0o700, parents=True)
        job = Job(
            id=name, folder=folder, name=title, line=" ".join(argv), argv=argv, changes=(), directory=None,
            devices=on, launcher="python", user="mira", scope=scope, starter=us, created=time.time() - ago,
            waits=facts.get("waits"), state="starting",
        )  # fmt: skip
        write_given(job)
        who = {"pid": us.pid, "ticks": us.ticks}
        started = {"supervisor": who, "command": who, "started": job.created}
        (folder / "started.json").write_text(json.dumps(started))
        (folder / "log").write_bytes(LOG)
        if "status" in facts:
            write_finished(folder, job.created + 540.0, status=facts["status"])


def _comparison(environ: dict[str, str]) -> None:
    """The benchmark of Hugging Face's guide, as a comparison that ended an hour ago."""
    steps, began, command = 200, time.time() - 3700, ("train.py", "--lr", "3e-4")
    variants = (("python", "0", 110.5948), ("torchrun", "0", 101.9003), ("torchrun", "1", 131.4367))
    rows = tuple(
        Row(
            (launcher, denied),
            f"launcher={launcher} NCCL_P2P_DISABLE={denied}",
            command,
            (
                Run(
                    round=1,
                    job="k3f9",
                    state="done",
                    status=0,
                    wall=runtime + 9.4,
                    runtime=runtime,
                    steps_per_second=steps / runtime,
                    peak_memory=round(14.2 * 2**30),
                    utilization=9700 / runtime,
                ),
            ),
            ("4", "5"),
            f"NCCL_P2P_DISABLE={denied} {launcher} train.py",
        )
        for launcher, denied, runtime in variants
    )
    axes = (Axis("option", "launcher", ("python", "torchrun")), Axis("env", "NCCL_P2P_DISABLE", ("0", "1")))
    launch = LaunchRequest(LaunchOptions(command=command), DeviceRequest(names="4,5"))
    names = tuple((axis.name, axis.key) for axis in axes)
    request = ExperimentRequest("comparison", launch, axes=axes)
    made = Experiment(Path(), "done", began, request, names, rows, ("4", "5"), ended=began + 400)
    # (Its id is drawn; a picture has always the same.)
    drawn = store.begin(made, environ).folder
    drawn.rename(drawn.with_name("r8c4"))


def _after(main: MainScreen, snapshot: Snapshot) -> AppState:
    """The app state after one more reading, with its timelines."""
    return replace(main.app_state.with_snapshot(snapshot), timelines=main.timelines.after(snapshot))


def _proved(launch: Launch, snapshot: Snapshot, *_: object, **__: object) -> Report:
    """What `gputui check` finds where all is well: this machine's own Python knows nothing of the box."""
    devices = launch.devices
    seen = tuple(
        SeenDevice(d.uuid.removeprefix("GPU-"), d.pci_bus_id, d.name, d.memory_total) for d in devices
    )
    values = tuple((name, value) for name, value in launch.changes if value is not None)
    return Report(
        devices,
        snapshot,
        vendor_named("nvidia"),
        ("python3", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        seen=Seen(
            "3.12.4",
            "/usr/bin/python3",
            values,
            Framework("2.6.0", cuda="12.4", built=True, devices=seen),
            Driver(),
        ),
        variables=tuple(Variable(name, value, value) for name, value in values),
        ranks=len(devices),
    )


def _programs(state: Path) -> Path:
    """Make a folder of the programs that the pictures' commands start; none is ever run."""
    folder = state / "bin"
    folder.mkdir()
    for name in ("python", "torchrun", "accelerate", "sh"):
        (folder / name).touch(0o755)
    return folder


async def take(picture: Picture) -> None:
    """Run the program up to the moment of the picture, and write it."""
    clock = _Clock()
    source = SimulatedSource(picture.box if isinstance(picture.box, Box) else BOXES[picture.box], clock)
    source.open()
    source.read(_EVERYTHING)
    clock.now -= picture.watched
    mailbox = Mailbox()
    sampler = Sampler(source, mailbox.put)
    state = Path(tempfile.mkdtemp())
    environ = {"TERM": "xterm-256color", "PATH": str(_programs(state)), "XDG_STATE_HOME": str(state)}
    environ["GPUTUI_CLAIMS"] = str(state / "claims")
    if picture.name.startswith("jobs"):
        _jobs(state, {device.index: device.uuid for device in source.read().devices})
    if picture.name.startswith("experiments"):
        _comparison(environ)
    model = state / "Llama-2-7b"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(_LLAMA))
    os.chdir(state)
    screen = ScreenSettings(theme=picture.theme)
    # (Of this machine the real Slurm and the real boxes would be asked.)
    label = source.label if picture.name.startswith("nodes") else ""
    app_state = AppState(environ, LaunchOptions(picture.command, picture.launcher), label, screen=screen)
    app = GputuiApp(app_state, sampler, mailbox, comparison, clock=clock)
    async with app.run_test(size=picture.size) as pilot:
        main = app.screen_stack[0]
        assert isinstance(main, MainScreen)
        for _ in range(picture.watched + 1):
            main.set_app_state(_after(main, source.read()))
            clock.now += 1
        clock.now = NOON
        while main.app_state.timelines is None or not main.app_state.timelines.adopted:
            await asyncio.sleep(0.01)
        # The panels come with the second reading that the screen is sent.
        main.post_message(NewReading(Reading(source.read(), time.monotonic())))
        await pilot.pause()
        for key in picture.keys:
            if key.startswith("@"):
                main.choose(key.removeprefix("@"))
            else:
                await pilot.press(key)
            while main.plans.reading:
                await asyncio.sleep(0.01)
        if "enter" in picture.keys[-1:]:
            # The reading that comes before a launch.
            main.post_message(NewReading(Reading(source.read(), time.monotonic())))
        await pilot.pause()
        assert not isinstance(app.screen, PaletteScreen), f"{picture.keys} has no action of that name"
        svg = app.export_screenshot(title="gputui")
    os.chdir(HERE)
    shutil.rmtree(state)
    (HERE / f"{picture.name}.svg").write_text(svg)


def main() -> None:
    os.environ["TZ"] = "UTC"
    # The load of whoever makes the pictures is not to be in them.
    setattr(psutil, "cpu_percent", lambda *_: 12.0)  # noqa: B010 - its type has overloads
    setattr(check, "check", _proved)  # noqa: B010 - it starts a program that is not here
    time.tzset()
    wanted = sys.argv[1:]
    for picture in PICTURES:
        if wanted and not picture.name.startswith(tuple(wanted)):
            continue
        asyncio.run(take(picture))
        print(picture.name)


if __name__ == "__main__":
    main()
