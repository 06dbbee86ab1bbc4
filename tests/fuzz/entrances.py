"""Each entrance of hostile text: the possible inputs, and the conditions that hold for every input."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
import time
import tty
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock
from zlib import crc32

from hypothesis import strategies as st

from fuzz.calls import call, own_folders, plain
from fuzz.oracle import torchs_reader
from fuzz.strategies import JSON, NASTY, TEXT, bytes_of
from gputui.allocating.claims.files import NAME, WAITING
from gputui.allocating.claims.read import HELD, claims, range_of
from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.queue import in_words, waiters
from gputui.checking import plan_proof
from gputui.checking.trained_model import workload_of
from gputui.choosing.verdict import verdicts
from gputui.cli import job_output, ls_ray, ls_slurm
from gputui.cli import jobs as jobs_cli
from gputui.cli.common import WrongCallError
from gputui.cli.job_mapping import read_jobs, with_own_jobs, write_jobs
from gputui.cli.ls_text import document_text, table
from gputui.cli.metrics_text import metrics_text
from gputui.cli.run_held import agreed, reached
from gputui.inventory.readings import HEAD
from gputui.inventory.snapshot import Host, Snapshot
from gputui.inventory.typed_json import DocumentError
from gputui.jobs.box_jobs import jobs_told
from gputui.jobs.experiments.axes import Axis, AxisError
from gputui.jobs.experiments.log_figures import read_figures
from gputui.jobs.experiments.record import CHANGE, STORED, Experiment, Row, Run
from gputui.jobs.experiments.request import REQUEST, ExperimentRequest, variants_of
from gputui.jobs.last_lines import lines_in
from gputui.jobs.process_tree import own_scope
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.training_words import training_of
from gputui.planning.box import box_of
from gputui.planning.document import to_document
from gputui.planning.model import PlanningError
from gputui.planning.plan import plan
from gputui.planning.reading import read_model
from gputui.planning.workload import Workload
from gputui.requesting.launch_request import LaunchRequest, received, sent, sparse
from gputui.sources.hosts.reading import read
from gputui.sources.hosts.remote_script import Mode
from gputui.sources.hosts.session import Answer
from gputui.sources.ray import nodes_of
from gputui.sources.recorded import RecordedSource
from gputui.sources.simulated.source import named
from gputui.sources.slurm import printed
from gputui.sources.slurm.cluster import Cluster
from gputui.sources.source import NoSourceError, Want
from gputui.system.child_process import Ended
from gputui.system.containers import container
from gputui.system.namespaces import pid_namespace
from gputui.system.record_locks import END, lock
from gputui.system.users import user_name
from gputui.timeline.usage import file_of, folder_of
from gputui.tui.views import box_jobs
from gputui.tui.views import jobs as jobs_view
from gputui.vendors.nvidia.vendor import VENDOR


@dataclass(frozen=True)
class Entrance:
    """The possible inputs (one argument), and the function that checks each."""

    comes: st.SearchStrategy[Any]
    check: Callable[[Any], None]


@cache
def _box(name: str) -> Snapshot:
    source = named(name)
    source.open()
    return source.read(Want.ALL | Want.DETAILS | Want.HOST)


@cache
def _document(name: str) -> Any:
    return json.loads(document_text(_box(name), verdicts(_box(name)), details=True))


BOXES = ("rtx4090", "a100-mig", "shared")


# Recordings


def _recording(data: bytes) -> None:
    with own_folders() as folder:
        file = folder / "box.json"
        file.write_bytes(data)
        given = ("--from", str(file))
        for words in (
            ("ls", "--details"),
            ("ls", "--json"),
            ("topo", "--tree"),
            ("topo", "--json"),
            ("ls", "--format", "{host} {models} {free}/{total}"),
            ("metrics",),
            ("people",),
            ("queue",),
            ("claims",),
            ("pick", "-n2", "--why"),
            ("pick", "-n4", "--group", "2x2", "--why"),
            ("run", "-n2", "--dry-run", "--", "python", "x.py"),
        ):
            ended = call(*words, *given) if words[0] != "run" else call("run", *given, *words[1:])
            assert plain(ended.out), (words, ended.out)


_CELLS = st.sampled_from(["NV1", "NV4", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", None])
_PEERS = st.sampled_from(["OK", "NS", "CNS", "GNS", "TNS", None])


@st.composite
def _one_sided(draw: st.DrawFn) -> bytes:
    """A recording whose links, and peers, differ between the two directions."""
    document = json.loads(json.dumps(_document("rtx4090")))
    count = len(document["devices"])
    for device in document["devices"]:
        device["processes"], device["memory_used"], device["utilization"] = [], 0, 0
    for key, cells in (("links", _CELLS), ("peers", _PEERS), ("pcie", _CELLS)):
        if draw(st.booleans()):
            rows = [[draw(cells) if i != j else "X" for j in range(count)] for i in range(count)]
            document[key] = rows
    return json.dumps(document).encode()


# The jobs that a cluster names to dcgm-exporter

_SAMPLE = re.compile(r"[A-Za-z_]+(\{[A-Za-z_]+=\"(?:[^\"\\\n]|\\[\"\\])*\".*\})? -?[0-9.e+-]+")


def _job_mapping(files: list[tuple[str, bytes]]) -> None:
    with own_folders() as folder:
        for name, data in files:
            (folder / name).write_bytes(data)
        before = read_jobs(folder)
        box = _box("shared")
        after = with_own_jobs(before, box)
        write_jobs(folder, before, after)
        assert read_jobs(folder) == after
        *lines, last = metrics_text(box, verdicts(box), after).splitlines()
        assert last == "# EOF"
        assert all(line.startswith(("# HELP ", "# TYPE ")) or _SAMPLE.fullmatch(line) for line in lines)


# accelerate's files

_ACCELERATE = {
    "compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "gpu_ids": "0,1",
    "num_processes": 2, "num_machines": 1, "machine_rank": 0, "main_process_ip": "x",
    "mixed_precision": "bf16",
    "main_process_port": 29500, "rdzv_backend": "static", "same_network": True, "use_cpu": False,
    "deepspeed_config": {"zero_stage": 2, "deepspeed_multinode_launcher": "pdsh"},
    "fsdp_config": {"fsdp_version": 2}, "parallelism_config": {"parallelism_config_tp_size": 2},
}  # fmt: skip


def _accelerate(data: bytes) -> None:
    with own_folders() as folder:
        for name in ("c.yaml", "c.json"):
            (folder / name).write_bytes(data)
            command = ("accelerate", "launch", "--config_file", str(folder / name), "x.py")
            call("run", "--demo", "--dry-run", "-n2", "--", *command)
            call("run", "--demo", "--dry-run", "--", *command)
            call("export", "--demo", "-n2", "--as", "accelerate", "--", *command)


# The files of transformers' Trainer

_OF_TRAINER = {
    "fsdp_activation_checkpointing": True, "zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"},
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto", "split_batches": True,
    "gradient_accumulation_kwargs": {"num_steps": 4}, "ddp_bucket_cap_mb": 25,
}  # fmt: skip


def _trainer(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("c.json", "c.yaml"):
            file = Path(folder) / name
            file.write_bytes(data)
            for option in ("--fsdp_config", "--deepspeed", "--accelerator_config", "--config"):
                command = ("torchrun", "train.py", "--model_name_or_path", "m", option, str(file))
                said = training_of(LaunchOptions(command), {})
                assert said.model is not None and all(map(plain, said.doubts))
                with contextlib.suppress(PlanningError):
                    workload_of(said, None, {})


# The answers about a model of the training's own Python

_PROOF = (
    ("model", {"versions": {"torch": "2.13", "transformers": "5"}, "architecture": "L", "parameters": 3,
               "largest_layer": 2, "wrap_class": "L", "blocks": 1, "largest_block": 2}),
    ("estimates", {"version": "0.19", "estimates": [{"stage": 2, "offload": "none", "gpu": 1, "cpu": 1}]}),
    ("tracked", {"peak": 3, "without": ["attn_pdrop"]}),
)  # fmt: skip


def _proof(files: tuple[bytes | None, ...]) -> None:
    with own_folders() as folder:
        for (part, _), data in zip(_PROOF, files, strict=True):
            if data is not None:
                (folder / f"{part}.json").write_bytes(data)
                (folder / f"{part}.error").write_bytes(data)
        proof = plan_proof.read(folder, Ended(0, ""))
        assert proof.numbers.get("parameters", 0) >= 0
        assert all(len(text.splitlines()) == 1 for text in (*proof.problems, *proof.remarks))


# Recordings of several readings, and the usage of a day


def _several(files: tuple[bytes, bytes, bool]) -> None:
    first, second, table = files
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / ("run.csv" if table else "run.jsonl")
        file.write_bytes(HEAD + first + b"\n" + second if table else first + b"\n" + second + b"\n")
        now = iter((0.0, 0.0))
        source = RecordedSource(str(file), lambda: next(now, 1e12))
        try:
            source.open()
            for _ in range(3):
                document_text(source.read(), verdicts(source.read()))
        except NoSourceError as error:
            assert plain(str(error))


_ROW = [1.0] * 8
_DAY = (
    [1.0, 2.0, 3.0, {"GPU-0": "GPU 0"}, {"GPU-0": [1.0, 2.0]}],
    *([[*names, *_ROW]] for names in ("a", ("GPU-0",), "ba")),
)


def _day(data: bytes) -> None:
    with own_folders() as folder:
        file = file_of(folder_of(folder / "state" / "gputui"), time.time())
        file.parent.mkdir(parents=True)
        file.write_bytes(b"%08x\n%s\n" % (crc32(data), data))
        for words in ((), ("--json",), ("--by", "job"), ("--by", "device")):
            ended = call("usage", *words)
            assert plain(ended.out), (words, ended.out)


# Claims and tickets

_TOKENS = [f"{number:032x}" for number in range(3)]
_CLAIM = {
    "record": f"GPU-0@0.{_TOKENS[0]}.claim", "since": 1.0, "command": "python x.py", "pid": 2, "job": "k3f9",
    "roots": [[2, 3]], "pids": pid_namespace(),
}  # fmt: skip
_TICKET = {"count": 2, "devices": ["GPU-0"], "since": 1.0, "command": "x", "step": 0, "job": "k3f9"}
_NAMES = st.sampled_from(
    [
        *(
            f"{name}.{token}.{kind}"
            for token in _TOKENS
            for name, kind in (
                ("GPU-0@{uid}", "claim"), ("GPU-0@{uid}.step1", "claim"), ("MIG-GPU-1+2+3@{uid}", "claim"),
                ("wait.{uid}", "ticket"), ("GPU-0@9999999999", "claim"), ("GPU-0@99999999999", "claim"),
            )
        ),
        *("GPU-0@{uid}.0.claim", "wait.1.zz.ticket", f"GPU-0@{{uid}}.{_TOKENS[0]}.claim\n", "x"),
    ]
)  # fmt: skip


def _locked(path: Path) -> int:
    """The open file, locked as its holder, or a waiter, would lock it; a job has inherited it."""
    descriptor = os.open(path, os.O_RDWR)
    os.set_inheritable(descriptor, True)
    match = re.fullmatch(NAME, path.name)
    if match is not None:
        lock(descriptor, range_of(match["key"].replace("+", "/")), HELD)
    else:
        now = int(time.monotonic())
        lock(descriptor, now, END - now)
    return descriptor


def _says_its_name(path: Path) -> bool:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return True
    return not isinstance(document, dict) or bool(document.get("record", path.name) == path.name)


def _claims(files: list[tuple[str, bytes]]) -> None:
    with own_folders() as folder:
        held = []
        for name, data in files:
            path = folder / "claims" / name.format(uid=os.geteuid())
            path.write_bytes(data)
            path.chmod(0o644)
            held.append(_locked(path))
        # A record that says that it was created under another name is not one of its holder's.
        names = [path.name for path in (folder / "claims").iterdir() if _says_its_name(path)]
        try:
            found, problems = claims(os.environ)
            assert all(plain(problem) for problem in problems), problems
            # All are of this user: with another number in the name, the same record may exist in another
            # format.
            known = [m.group("key", "step", "token") for name in names if (m := re.fullmatch(NAME, name))]
            assert len({*known}) <= len(found) <= len(known), (found, problems)
            line = waiters(os.environ)
            assert plain(in_words(line)) and len(line) == sum(
                bool(re.fullmatch(WAITING, name)) for name in names
            )
            # The kernel says that they are of this user, whatever their text is.
            assert {each.user for each in (*found, *line)} <= {user_name(os.geteuid())}
            for words in (("claims",), ("claims", "--json"), ("queue",), ("queue", "--json")):
                assert plain(call(*words).out)
            call("run", "--demo", "-n1", "--dry-run", "--", "true")
        finally:
            for descriptor in held:
                os.close(descriptor)


# Jobs

_GIVEN = {
    "schema": 1, "name": None, "line": "x", "argv": ["python", "x.py"], "changes": [["A", None], ["B", "1"]],
    "directory": "/", "devices": [{"index": 0, "uuid": "GPU-0", "name": None}], "launcher": "python",
    "user": "u", "host": own_scope().host, "boot": own_scope().boot, "pids": own_scope().pids,
    "starter": {"pid": 2, "ticks": 3}, "created": 1.0, "waits": None,
    "launch": {"command": ["python", "x.py"], "additions": [["A", "1"]], "count": 1, "when": 1.0},
}  # fmt: skip
_STARTED = {"supervisor": {"pid": 2, "ticks": 3}, "command": {"pid": 2, "ticks": 3}, "started": 1.0}
_ENDED = {
    "ended": 1.0, "status": 0, "signal": None, "stop": None, "killed": 0, "left": 0,
    "trouble": {"step": "program", "errno": 2},
}  # fmt: skip


def _jobs(files: tuple[bytes, bytes, bytes]) -> None:
    with own_folders() as folder:
        job = folder / "state" / "gputui" / "jobs" / "k3f9"
        job.mkdir(parents=True)
        for name, data in zip(("job.json", "started.json", "ended.json"), files, strict=True):
            if data:
                (job / name).write_bytes(data)
        (job / "log").write_bytes(b"\x1b[2Jlog\n")
        with mock.patch.object(jobs_cli, "_box", lambda *_: Snapshot(Host(), 0.0, ())):
            for words in ((), ("--json",), ("show", "k3f9"), ("show", "k3f9", "--command")):
                call("jobs", *words)
            call("jobs", "log", "k3f9")
            call("jobs", "forget", "k3f9", "--force")


# Comparisons

_REQUEST = ExperimentRequest(
    "comparison",
    LaunchRequest(LaunchOptions(("train.py", "{1,2}")), DeviceRequest(count=1)),
    axes=(Axis("env", "X", ("0", "1")),),
    metric="loss (.*)",
)
_MEASURED = Experiment(
    Path("k3f9"),
    "running",
    1e9,
    _REQUEST,
    (("env:X", "X"), ("{1,2}", "{1,2}")),
    (Row(("0", "1"), "X=0 {1,2}=1", ("train.py", "1"), (Run(1, "m6u5", "done", 0, wall=2.5),), ("0",)),),
)
_RECORD = {"schema": 1, **STORED.write(_MEASURED)}
_CHANGE = CHANGE.write(_MEASURED.change(0, Run(2, "m6u5", "failed", 3, started=1e9, ended=1e9)))


def _comparison(files: tuple[bytes, bytes]) -> None:
    with own_folders() as folder:
        comparison = folder / "state" / "gputui" / "comparisons" / "k3f9"
        comparison.mkdir(parents=True)
        for name, data in zip(("comparison.json", "changes.jsonl"), files, strict=True):
            (comparison / name).write_bytes(data)
        for words in (("--list",), ("--show", "k3f9"), ("--list", "--json"), ("--show", "k3f9", "--csv")):
            ended = call("compare", *words)
            assert "--csv" in words or plain(ended.out), (words, ended.out)
        call("compare", "--forget", "k3f9")


def _experiment_request(data: bytes) -> None:
    with contextlib.suppress(DocumentError, UnicodeDecodeError):
        request = received(data.decode(), REQUEST)
        assert received(sent(request, REQUEST), REQUEST) == request
        with contextlib.suppress(AxisError):
            variants_of(request)


# Sweeps

_SWEPT = _RECORD | STORED.write(replace(_MEASURED, request=replace(_REQUEST, kind="sweep")))


def _sweep(data: bytes) -> None:
    with own_folders() as folder:
        sweep = folder / "state" / "gputui" / "sweeps" / "k3f9"
        sweep.mkdir(parents=True)
        (sweep / "sweep.json").write_bytes(data)
        for words in (("--list",), ("--show", "k3f9"), ("--list", "--json")):
            ended = call("each", *words)
            assert plain(ended.out), (words, ended.out)
        call("each", "--forget", "k3f9")


def _tasks_of_file(data: bytes) -> None:
    with own_folders() as folder:
        (folder / "tasks").write_bytes(data)
        ended = call("each", "--demo", "idle", "--dry-run", "--from-file", str(folder / "tasks"))
        assert plain(ended.err), ended.err


_SPEEDS = st.sampled_from(
    [
        *("train_runtime", "': ", "1e9", "1 day, 0:00:0.5", "it/s", "s/it", "|1/2 ", "[00:01<00:00, "),
        *(" steps/s", "ms/step", "loss", "\r", "\n"),
    ]
)


def _figures(text: str) -> None:
    found = read_figures(text.splitlines(), re.compile("loss(.*)"))
    assert all(figure is None or abs(figure) < float("inf") for figure in found)


# Settings

_KEYS = st.sampled_from(
    """memory utilization window ignore_users mine_is_free never prefer notify log_cap theme interval
    hidden columns sort filter keys x""".split()  # noqa: SIM905
)

_TABLES = st.sampled_from(["rules", "devices", "wait", "jobs", "screen", "screen.keys", "x"])


def _toml(value: Any) -> str:
    """A value of JSON in TOML, approximately."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return '"none"' if value is None else json.dumps(value)


_SETTINGS = st.lists(
    st.tuples(_TABLES, _KEYS, JSON | st.sampled_from(["1G", "none", "0", ["0"], 1, True])), max_size=4
).map(lambda rows: "".join(f"[{table}]\n{key} = {_toml(value)}\n" for table, key, value in rows))


def _settings(text: bytes) -> None:
    with own_folders() as folder:
        (folder / "config" / "gputui").mkdir(parents=True)
        (folder / "config" / "gputui" / "config.toml").write_bytes(text)
        call("ls", "--demo")
        call("pick", "--demo", "-n1")


# Lists of devices

_UUIDS = [device.uuid for device in _box("dgx-h100").devices]
_ENTRIES = (
    st.integers(-2, 10).map(str)
    | st.sampled_from(_UUIDS)
    | st.builds(lambda uuid, n: uuid[:n], st.sampled_from(_UUIDS), st.integers(0, 45))
    | st.sampled_from(
        ["none", "all", "nvidia:1", "x:1", "GPU-", "MIG-1", "+1", "01", " 1", "1 ", "\t2", "-0"]
    )
)
_LISTS = st.lists(_ENTRIES, max_size=5).map(",".join)


def _gpus(text: str) -> None:
    with own_folders():
        ended = call("pick", "--demo=dgx-h100", f"--gpus={text}")
        assert ended.status in (0, 2, 4) and plain(ended.out)
        call("run", "--demo=dgx-h100", "--dry-run", f"--gpus={text}", "--", "true")


def _inherited(text: str) -> None:
    devices = _box("dgx-h100").devices
    environ = {"CUDA_VISIBLE_DEVICES": text, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    found = VENDOR.visibility.inherited(environ, devices)
    assert found is not None and found.unknown is None
    read = torchs_reader()
    places = read(text, _UUIDS) if read is not None and text.isascii() else None
    if places is not None:
        assert list(found.keys) == [devices[place].key for place in places], (text, found)


# Commands

_WORDS = st.sampled_from(
    """python torchrun accelerate launch deepspeed mpirun srun docker run vllm serve yolo train -m -n
    -np -c -- - x.py --nproc-per-node --num_gpus --num_processes --gpu_ids --include --gpus
    --tensor-parallel-size -tp device=0,1 --standalone --nproc-per-node=2 localhost:0,1 0,1 all bash sh
    -lc env nice uv sudo ssh timeout 10s numactl CUDA_VISIBLE_DEVICES=1 CUDA_VISIBLE_DEVICES= A=1
    $(nproc) -it --rm image ray job submit make nsys profile trainer.devices=4 --devices --host a:2,b:2
    --module torch.distributed.run --config_file /nonexistent""".split()  # noqa: SIM905
)

_COMMANDS = st.lists(_WORDS | TEXT.filter(lambda word: "\0" not in word), min_size=1, max_size=8)


def _command(words: list[str]) -> None:
    with own_folders():
        call("run", "--demo", "--dry-run", "--", *words)
        call("run", "--demo", "--dry-run", "-n2", "--launcher", "torchrun", "--", *words)
        call("export", "--demo", "-n2", "--as", "docker", "--", *words)


# Names of users and containers


def _names(names: tuple[str, str, str]) -> None:
    user, command, cgroup = names
    found = container(cgroup)
    assert found is None or len(found) < 200
    document = json.loads(json.dumps(_document("shared")))
    for device in document["devices"]:
        for process in device["processes"] or ():
            process.update(user=user, command=command, container=found or user)
    _recording(json.dumps(document).encode(errors="surrogatepass"))


# Logs, on a pseudo-terminal

_HARMLESS = re.compile(r"(?:[^\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f]|\x1b\[[0-9:;]*[mABCDFGJK])*")
_LOGS = st.lists(
    st.binary(max_size=30)
    | st.sampled_from(
        [b"\x1b", b"\x1b[", b"\x1b]52;c;eA==\x07", b"\x9b", b"\x1bP", b"\n", b"\r", b"6n", b"\x1bc"]
    )
    | st.text(max_size=20).map(lambda text: text.encode(errors="surrogatepass")),
    max_size=30,
)


def _log(pieces: list[bytes]) -> None:
    terminal, ours = os.openpty()
    try:
        tty.setraw(ours)
        with os.fdopen(os.dup(ours), "w", encoding="utf-8", errors="surrogateescape") as stream:
            with mock.patch.object(sys, "stdout", stream):
                job_output._to_a_terminal(pieces)
                # An empty log writes the final reset of colours all the same.
            stream.flush()
        shown = b""
        while not shown.endswith(b"\x1b[0m"):
            shown += os.read(terminal, 65536)
    finally:
        os.close(terminal)
        os.close(ours)
    assert _HARMLESS.fullmatch(shown.decode()), shown


# Models

_CONFIGS = st.one_of(
    *(
        bytes_of(
            {
                "model_type": kind,
                "architectures": ["X"],
                "hidden_size": 64,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "intermediate_size": 96,
                "vocab_size": 97,
                "tie_word_embeddings": True,
                "mlp_only_layers": [0],
                "q_lora_rank": None,
            }
        )
        for kind in ("llama", "gpt2", "qwen3_moe", "deepseek_v3", "opt", "falcon", "t5", "vit", "newest")
    )
)
_HEADER = {"w": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 32]}, "__metadata__": {"format": "pt"}}


def _gguf(parts: tuple[bytes, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.gguf"
        file.write_bytes(b"".join(parts))
        try:
            assert read_model(str(file), {}, Path(folder)).stored == file.stat().st_size
        except PlanningError as error:
            assert plain(str(error))


def _model(files: tuple[bytes, bytes, int]) -> None:
    config, header, length = files
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "config.json").write_bytes(config)
        (place / "model.safetensors").write_bytes(
            (len(header) + length).to_bytes(8, "little") + header + bytes(32)
        )
        for name in ("config.json", "model.safetensors", "."):
            try:
                found = plan(
                    read_model(name, {}, place),
                    Workload(),
                    box_of(_box("dgx-h100"), _box("dgx-h100").devices),
                )
            except PlanningError as error:
                assert plain(str(error))
            else:
                document = to_document(found)
                assert plain(json.dumps(document)) and json.loads(json.dumps(document)) == document
                assert all(plain(text) for text in (found.model.name, *found.notices))


_SLURM_WORDS = st.lists(
    st.sampled_from(
        [
            *(
                "NodeName=n1 ",
                "JobId=9 ",
                " Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)",
                "Gres=gpu:h100:4",
                "GresUsed=gpu:h100:2(IDX:0-1)",
                " State=IDLE*+DRAIN",
                " Reason=",
            ),
            *(
                "gpu:",
                "(",
                ")",
                "[",
                "]",
                "n[1-3]",
                ",",
                "-",
                "0-9999999999",
                "(IDX:",
                "|",
                "\n",
                "=",
                " ",
                "+",
            ),
        ]
    )
    | TEXT,
    max_size=12,
).map("".join)


def _slurm(said: tuple[str, str]) -> None:
    text, jobs = said
    nodes, partitions = printed.read_nodes(text), printed.read_partitions(text)
    cluster = Cluster(nodes, partitions, printed.read_jobs(jobs, text))
    assert plain(ls_slurm.table(cluster, None))
    assert plain(json.dumps(ls_slurm.document(cluster, 0.0)))


_RAY_STATUS = {
    "data": {
        "clusterStatus": {"loadMetricsReport": {"usageByNode": {"a1": {"GPU": [1.5, 4.0], "CPU": [0, 2]}}}}
    }
}
_RAY_SUMMARY = {"data": {"summary": [{"hostname": "dgx-3", "raylet": {"nodeId": "a1"}}]}}


def _ray(said: tuple[bytes, bytes]) -> None:
    with contextlib.suppress(DocumentError):
        ray = ls_ray.Ray("127.0.0.1:8265", nodes_of(*said))
        snapshot = replace(_box("shared"), host=Host("dgx-3"))
        judged = verdicts(snapshot)
        assert all(map(plain, ls_ray.ray_text(ray, snapshot, judged)))
        assert plain(json.dumps(ls_ray.ray_document(ray, snapshot, judged)))


def _answer_of_box(given: tuple[bytes, Mode]) -> None:
    """The answer of another box is a snapshot that can be shown, or one line with the reason why not."""
    reading = read("gpu1", given[0], given[1], 1_750_000_000.0)
    if reading.snapshot is None:
        assert reading.error and plain(reading.error) and "\n" not in reading.error
    else:
        judged = verdicts(reading.snapshot)
        assert plain(table(reading.snapshot, judged, 80, colour=False))
        assert json.loads(document_text(reading.snapshot, judged))


_JOBS_THERE = {
    "schema": 1,
    "jobs": [
        {
            "id": "m6u5",
            "name": "night",
            "state": "failed",
            "line": "CUDA_VISIBLE_DEVICES=0 python t.py",
            "argv": ["python", "t.py"],
            "directory": "/home/ana",
            "devices": [{"index": 0, "uuid": "GPU-1", "name": "H100"}],
            "created": "2025-06-15T15:06:40+00:00",
            "started": None,
            "ended": "2025-06-15T15:16:40+00:00",
            "status": 1,
            "signal": None,
            "peak_process_memory": 1024,
        }
    ],
    "unreadable": [{"id": "x", "reason": "y"}],
}


def _jobs_of_box(given: tuple[bytes, bytes]) -> None:
    """The listed jobs of another box, and the log of one: rows of the page, or one line with the reason."""
    now = 1_750_000_000.0
    told = jobs_told(Answer("gpu1", 0, given[0], "", None, "run"), now)
    assert (told.jobs is None) == (told.error is not None) and (told.error is None or plain(told.error))
    shown = box_jobs.job_rows([told], now, 80) + box_jobs.box_lines(told, 80)
    # (Jobs have a heading.)
    assert len(box_jobs.row_keys([told])) + bool(told.jobs) == len(box_jobs.job_rows([told], now, 80))
    for job in told.jobs or ():
        assert job.id.isalnum()
        shown += jobs_view.facts_of(job, now, 80)
        pieces = jobs_view.pieces_of(lines_in(given[1]), 80)
        shown += jobs_view.log(pieces, 10, 0)[0]
    assert all(plain(text) for line in shown for text, _ in line)


_SMI = b"0, GPU-1, NVIDIA H100, 00000000:1B:00.0, 81559, 10, 81000, 0, 30, 66.05, [N/A], 550.54\n"
_ANY_BYTES = st.binary(max_size=60)


def _meeting(line: bytes) -> None:
    """The message of a box before it starts with others, and the reply that it receives."""
    with contextlib.suppress(DocumentError, ValueError, RecursionError):
        address, port = reached(line)
        assert (address is None or plain(address)) and (port is None or 0 < port < 65536)
    # The reader would look up names.
    with contextlib.suppress(WrongCallError), mock.patch("socket.getaddrinfo", return_value=[]):
        place, meeting = agreed(line)
        assert place.isprintable() and meeting.id.isalnum() and plain(str(meeting.address))


_MEETING = {
    "devices": ["GPU-1"],
    "port": 29400,
    "rendezvous": "10.0.0.1:29400",
    "id": "gputui1",
    "first": True,
    "address": "10.0.0.1",
}

ENTRANCES = {
    "models": Entrance(
        st.tuples(_CONFIGS | _ANY_BYTES, bytes_of(_HEADER) | _ANY_BYTES, st.sampled_from([0, 0, 0, 5])),
        _model,
    ),
    "recordings": Entrance(st.one_of(*(bytes_of(_document(name)) for name in BOXES), _ANY_BYTES), _recording),
    "answers of boxes": Entrance(
        st.tuples(bytes_of(_document("shared")) | _ANY_BYTES, st.just("run"))
        | st.tuples(
            st.tuples(_ANY_BYTES, st.integers(0, 90)).map(lambda x: _SMI[: x[1]] + x[0] + _SMI[x[1] :]),
            st.just("nvidia-smi"),
        ),
        _answer_of_box,
    ),
    "jobs of boxes": Entrance(st.tuples(bytes_of(_JOBS_THERE) | _ANY_BYTES, _ANY_BYTES), _jobs_of_box),
    "meetings of boxes": Entrance(bytes_of(_MEETING) | _ANY_BYTES, _meeting),
    "one-sided links": Entrance(_one_sided(), _recording),
    "job mappings": Entrance(
        st.lists(
            st.tuples(
                st.sampled_from(["0", "3", "01", "x", "4"]),
                TEXT.map(lambda text: text.encode(errors="surrogatepass")) | _ANY_BYTES,
            ),
            max_size=3,
            unique_by=lambda file: file[0],
        ),
        _job_mapping,
    ),
    "files of accelerate": Entrance(bytes_of(_ACCELERATE) | _ANY_BYTES, _accelerate),
    "files of the Trainer": Entrance(bytes_of(_OF_TRAINER) | _ANY_BYTES, _trainer),
    "headers of GGUF files": Entrance(
        st.tuples(
            st.sampled_from([b"GGUF\3\0\0\0" + bytes(8) + bytes([n]) + bytes(7) for n in (1, 9)]), _ANY_BYTES
        ),
        _gguf,
    ),
    "recordings of several readings": Entrance(
        st.tuples(
            bytes_of(_document("shared")) | _ANY_BYTES,
            bytes_of(_document("shared")) | _ANY_BYTES,
            st.booleans(),
        ),
        _several,
    ),
    "days of usage": Entrance(st.tuples(*map(bytes_of, _DAY)).map(b"\n".join) | _ANY_BYTES, _day),
    "proofs of a plan": Entrance(
        st.tuples(*(bytes_of(document) | _ANY_BYTES | st.none() for _, document in _PROOF)), _proof
    ),
    "claims and tickets": Entrance(
        st.lists(
            st.tuples(_NAMES, bytes_of(_CLAIM) | bytes_of(_TICKET) | _ANY_BYTES),
            max_size=4,
            unique_by=lambda file: file[0],
        ),
        _claims,
    ),
    "records of jobs": Entrance(
        st.tuples(bytes_of(_GIVEN), bytes_of(_STARTED) | st.just(b""), bytes_of(_ENDED) | st.just(b"")), _jobs
    ),
    "records of comparisons": Entrance(
        st.tuples(bytes_of(_RECORD) | _ANY_BYTES, bytes_of(_CHANGE) | _ANY_BYTES),
        _comparison,
    ),
    "requests for experiments": Entrance(bytes_of(sparse(REQUEST.write(_REQUEST))), _experiment_request),
    "records of sweeps": Entrance(bytes_of(_SWEPT) | _ANY_BYTES, _sweep),
    "files of tasks": Entrance(_ANY_BYTES, _tasks_of_file),
    "speeds in logs": Entrance(st.lists(_SPEEDS | TEXT, max_size=8).map("".join), _figures),
    "settings": Entrance(
        _SETTINGS.map(lambda text: text.encode(errors="surrogatepass")) | _ANY_BYTES, _settings
    ),
    "named devices": Entrance(_LISTS | TEXT.filter(lambda text: "\0" not in text), _gpus),
    "inherited lists": Entrance(_LISTS | TEXT.filter(lambda text: "\0" not in text), _inherited),
    "commands": Entrance(_COMMANDS, _command),
    "names": Entrance(st.tuples(TEXT, TEXT, TEXT | NASTY.map(lambda x: f"/docker-{x}.scope")), _names),
    "logs": Entrance(_LOGS, _log),
    "answers of Ray": Entrance(
        st.tuples(bytes_of(_RAY_STATUS) | _ANY_BYTES, bytes_of(_RAY_SUMMARY) | _ANY_BYTES), _ray
    ),
    "answers of Slurm": Entrance(
        st.tuples(
            _SLURM_WORDS,
            _SLURM_WORDS,
        ),
        _slurm,
    ),
}
