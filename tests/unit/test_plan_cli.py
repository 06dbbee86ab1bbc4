"""`gputui plan` and `-n auto`: their output for fully known boxes, and their exit statuses."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.queue import waiters
from gputui.checking.kept_bandwidth import keep, kept_bandwidths
from gputui.choosing.best import best
from gputui.choosing.pick import Constraints
from gputui.choosing.verdict import Cooling, Verdict, verdicts
from gputui.cli import request_options
from gputui.cli.plan_text import table_lines
from gputui.cli.planned_devices import settle_auto
from gputui.inventory.snapshot import Host, HostLoad, Snapshot
from gputui.launching.launch_options import LaunchOptions
from gputui.planning.box import box_of
from gputui.planning.devices import Candidates, PlannedDevices
from gputui.planning.fewest import fewest
from gputui.planning.plan import plan
from gputui.planning.workload import OPTIMIZERS, PRECISIONS, Workload
from gputui.requesting.launch_request import LaunchRequest, ModelRequest
from gputui.sources.simulated.boxes import BOXES
from gputui.system.files import state_folder, write_private
from messages import lines_of
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import GIB, busy, gpu, instance, recording
from unit.builders import box as box_of_devices
from unit.calling import Call, Ended
from unit.claims_support import Box, until
from unit.planning_models import LLAMA3_8B, LLAMA3_70B

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
    "llama-2-7b": {
        **LLAMA,
        **{"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000},
    },
    "llama-3-8b": {
        **LLAMA,
        **{"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256},
    },
    "llama-3-70b": {
        **LLAMA,
        **{"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64},
        **{"num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256},
    },
    "llama-3.2-1b": {
        **LLAMA,
        **{"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8},
        **{"intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True},
    },
    "strange": {"model_type": "strange", "hidden_size": 12},
}


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the calls, with a folder for each model."""
    for name, config in MODELS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "none"))
    return tmp_path


@pytest.fixture
def save(tmp_path: Path) -> Callable[[Snapshot], str]:
    """Write a recording, for `--from`."""
    return lambda snapshot: recording(tmp_path, snapshot)


def rows(call: Call, *words: str) -> dict[str, dict[str, Any]]:
    """The rows of a plan by strategy, best first."""
    return {row["name"]: row for row in call("plan", "--json", *words).json["strategies"]}


def cards(count: int, free: int, link: str = "PHB", **facts: Any) -> Snapshot:
    """A box of idle devices with this number of GiB."""
    memory = {"memory_total": free * GIB, "memory_free": free * GIB}
    return replace(
        box_of_devices(*(gpu(i, **memory, **facts) for i in range(count)), links=_all(link, count))
    )


def _all(link: str, count: int) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple("X" if i == j else link for j in range(count)) for i in range(count))


# The document


def test_json_has_the_keys_of_the_contract(call: Call) -> None:
    document = call("plan", "llama-2-7b", "--demo", "dgx-h100", "--json").json
    assert set(document) == {
        *("schema", "model", "devices", "memory_free_min", "strategies", "estimators", "notices"),
        *("workload", "global_batch", "nodes"),
    }
    assert document["schema"] == 1 and len(document["devices"]) == 8
    assert set(document["model"]) == {"name", "architecture", "parameters", "largest_layer"}
    assert document["model"]["parameters"] == 6_738_415_616
    for row in document["strategies"]:
        assert set(row) == {
            *("name", "devices", "tp", "pp", "bytes", "fits", "margin", "traffic_bytes", "seconds", "reason"),
            *("cp", "dp", "device_bytes", "exchanges", "bubble"),
            "serving",
        }
        parts = row["bytes"]
        assert set(parts) == {
            *("weights", "gradients", "optimizer", "buffers", "activations", "fixed", "cache", "total"),
        }
        assert row["serving"] is None
        assert sum(parts.values()) == 2 * parts["total"]
        assert row["margin"] == document["memory_free_min"] - parts["total"]
    estimates = document["estimators"]["deepspeed"]
    assert all(set(each) == {"stage", "offload", "gpu", "cpu"} for each in estimates)
    assert {(each["stage"], each["offload"]) for each in estimates} == {
        *((2, "none"), (2, "optimizer"), (3, "none"), (3, "optimizer"), (3, "all")),
    }


def test_deepspeeds_estimates_are_its_own_to_the_byte(call: Call) -> None:
    def stage(number: int, *words: str) -> int:
        document = call("plan", "llama-2-7b", *words, "--json").json
        found = document["estimators"]["deepspeed"]
        return next(e["gpu"] for e in found if e["stage"] == number and e["offload"] == "none")

    assert stage(2, "-n", "2", "--demo", "dgx-h100") == 74_122_571_776
    assert stage(3, "-n", "8", "--demo", "dgx-h100") == 15_685_723_136


@each_row("box", BOXES)
def test_deepspeeds_estimates_are_where_deepspeed_is_a_strategy(call: Call, box: str) -> None:
    document = call("plan", "gpt2", "--demo", box, "--json").json
    trains = any(row["name"].startswith("zero") for row in document["strategies"])
    assert bool(document["estimators"]["deepspeed"]) == trains == (box not in ("apple", "gb10"))


def test_weights_only_leaves_the_rest_out(call: Call) -> None:
    for row in rows(call, "gpt2", "--demo", "dgx-h100", "--weights-only").values():
        assert row["bytes"]["activations"] == row["bytes"]["fixed"] == row["bytes"]["buffers"] == 0


# Decisions (facts of the guides), with AdamW


def test_gpt2_on_two_is_ranked_by_time_and_then_by_memory(call: Call) -> None:
    found = rows(call, "gpt2", "-n", "2", "--precision", "autocast", "--demo", "rtx4090")
    first = [*found][:3]
    assert set(first) == {"zero2", "zero1", "ddp"}
    ranked = sorted(first, key=lambda name: (found[name]["seconds"], found[name]["bytes"]["total"]))
    assert first == ranked
    # Over slow links a pipeline comes before what gathers weights.
    assert [*found][3:6] == ["pp2", "zero3", "fsdp2"]


def test_a_one_billion_model_fits_on_a_24_gb_card_and_not_with_ddp(
    call: Call, save: Callable[[Snapshot], str]
) -> None:
    words = ("llama-3.2-1b", "--precision", "autocast", "-s", "512", "--checkpointing")
    found = rows(call, *words, "--from", save(cards(2, 24)))
    assert found["single"]["fits"] and not found["ddp"]["fits"]


def test_a_7b_model_on_eight_h100s_is_divided(call: Call) -> None:
    found = rows(call, "llama-2-7b", "--precision", "autocast", "--demo", "dgx-h100")
    assert next(iter(found)) == "zero2" and found["fsdp2"]["fits"]
    assert not found["ddp"]["fits"] and not found["single"]["fits"]
    states = found["ddp"]["bytes"]
    assert round((states["weights"] + states["gradients"] + states["optimizer"]) / GIB, 1) == 100.4


def test_an_8b_model_does_not_fit_on_four_3090s_and_lora_or_offload_would_do(call: Call) -> None:
    found = rows(call, "llama-3-8b", "-n", "4", "--precision", "autocast", "--demo", "rtx3090")
    parts = found["fsdp2"]["bytes"]
    assert round((parts["weights"] + parts["gradients"] + parts["optimizer"]) / GIB, 1) == 29.9
    assert not found["fsdp2"]["fits"] and "LoRA" in found["fsdp2"]["reason"]
    assert any(row["fits"] for name, row in found.items() if name.endswith("-offload"))


def test_links_decide_the_order(call: Call) -> None:
    joined = [*rows(call, "llama-3.2-1b", "-n", "4", "--demo", "dgx-h100")]
    apart = [*rows(call, "llama-3.2-1b", "-n", "4", "--demo", "rtx4090")]
    assert "tp2-fsdp2" in joined and not any(name.startswith("tp") for name in apart)
    assert joined.index("zero2") < joined.index("fsdp2") < joined.index("tp2-fsdp2")


def test_8_bit_adam_makes_fit_what_adamw_does_not(call: Call, save: Callable[[Snapshot], str]) -> None:
    # The second guide: 45 GB of weights in 16 bits on four devices of 40 GB.
    words = ("--parameters", "22.5B", "--weights-only", "--precision", "bf16", "--from", save(cards(4, 40)))
    assert not rows(call, *words)["fsdp2"]["fits"]
    assert rows(call, *words, "--optim", "adamw8bit")["fsdp2"]["fits"]


# Devices


def test_without_a_number_all_free_devices_of_one_vendor_are_planned_with(call: Call) -> None:
    assert len(call("plan", "gpt2", "--demo", "mixed-vendors", "--json").json["devices"]) > 1
    free = call("pick", "--demo", "-n", "3", "--format", "json").json["devices"]
    planned = call("plan", "gpt2", "--demo", "--json").json["devices"]
    assert set(planned) >= {each["uuid"] for each in free}


def test_named_devices_are_planned_with_as_they_are(call: Call, save: Callable[[Snapshot], str]) -> None:
    snapshot = box_of_devices(gpu(0), busy(gpu(1)), gpu(2))
    document = call("plan", "gpt2", "--gpus", "1,0", "--from", save(snapshot), "--json").json
    assert document["devices"] == [snapshot.devices[1].uuid, snapshot.devices[0].uuid]
    assert document["memory_free_min"] == snapshot.devices[1].memory_free


def test_devices_in_use_are_planned_as_if_empty_and_that_is_said(
    call: Call, save: Callable[[Snapshot], str]
) -> None:
    used = busy(gpu(1))
    document = call("plan", "gpt2", "-n", "2", "--from", save(box_of_devices(gpu(0), used)), "--json").json
    assert document["memory_free_min"] == 80 * GIB
    assert any("1 of the 2 GPUs is in use" in notice for notice in document["notices"])
    ended = call("plan", "gpt2", "-n", "1", "--from", save(box_of_devices(gpu(0), used)), "--json")
    assert not any("in use" in notice for notice in ended.json["notices"])


def test_free_devices_are_planned_with_before_any_in_use(call: Call, save: Callable[[Snapshot], str]) -> None:
    snapshot = box_of_devices(busy(gpu(0)), busy(gpu(1)), gpu(2), gpu(3))
    document = call("plan", "gpt2", "-n", "3", "--from", save(snapshot), "--json").json
    assert {device.uuid for device in snapshot.devices[2:]} < set(document["devices"])
    assert any("1 of the 3 GPUs is in use" in notice for notice in document["notices"])


def test_a_device_that_the_rules_exclude_is_not_used_with_those_in_use() -> None:
    snapshot = box_of_devices(gpu(0), gpu(1), busy(gpu(2)), busy(gpu(3)))
    first, second, *others = snapshot.devices
    limits = Constraints(never=(first.key,))
    found = Candidates(snapshot, verdicts(snapshot), limits, (others[1],)).planned(2)
    assert found is not None and [device.key for device in found.devices] == [others[1].key, second.key]
    used = Candidates(snapshot, verdicts(snapshot), limits).planned(3)
    assert used is not None and {device.key for device in used.devices} == {
        device.key for device in (second, *others)
    }
    assert {device.key for device in used.in_use} == {device.key for device in others}
    assert Candidates(snapshot, verdicts(snapshot), limits).planned(4) is None


def test_selected_devices_are_planned_with_wherever_the_others_are_picked() -> None:
    snapshot = box_of_devices(gpu(0), gpu(1), busy(gpu(2)))
    within = Constraints(within=[snapshot.devices[1].key, snapshot.devices[2].key])
    for count, used in ((2, 0), (3, 1)):
        candidates = Candidates(snapshot, verdicts(snapshot), within, snapshot.devices[:1])
        found = candidates.planned(count)
        assert found is not None and found.devices[0].key == snapshot.devices[0].key
        assert len(found.devices) == count and len(found.in_use) == used


def test_only_one_of_several_instances_can_be_planned_with() -> None:
    parent = gpu(0, mig=True)
    snapshot = box_of_devices(parent, instance(parent, 1), instance(parent, 2))
    candidates = Candidates(snapshot, verdicts(snapshot), Constraints())
    assert candidates.most == 1 and candidates.planned(2) is None
    found = candidates.planned()
    assert found is not None and len(found.devices) == 1


def test_a_free_instance_is_not_planned_with_beside_devices_in_use() -> None:
    parent = gpu(0, mig=True)
    snapshot = box_of_devices(parent, instance(parent, 1), busy(gpu(1)), busy(gpu(2)))
    found = Candidates(snapshot, verdicts(snapshot), Constraints()).planned(2)
    assert found is not None and [device.index for device in found.in_use] == [1, 2]


def test_a_device_as_if_empty_still_lacks_the_memory_of_an_idle_one() -> None:
    snapshot = box_of_devices(replace(busy(gpu(0)), memory_idle=GIB))
    found = Candidates(snapshot, verdicts(snapshot), Constraints()).planned(1)
    assert found is not None
    (device,) = found.devices
    assert device.memory_total is not None and device.memory_free == device.memory_total - GIB
    assert device.memory_used == GIB


def test_a_device_that_cools_down_is_planned_with_as_if_empty() -> None:
    snapshot = box_of_devices(gpu(0), gpu(1))
    cooling = {snapshot.devices[1].key: Verdict("cooling", Cooling(snapshot.time - 1, 10.0))}
    found = Candidates(snapshot, {**verdicts(snapshot), **cooling}, Constraints()).planned(2)
    assert found is not None and (found.how, found.in_use) == ("as if empty", (snapshot.devices[1],))


def test_a_device_whose_use_is_not_known_is_planned_with_and_said_so() -> None:
    snapshot = box_of_devices(gpu(0), gpu(1, processes=None))
    found = Candidates(snapshot, verdicts(snapshot), Constraints()).planned(2)
    assert found is not None and (found.how, found.in_use) == ("perhaps in use", ())


def test_a_plan_keeps_its_reading_when_one_of_its_devices_is_gone() -> None:
    snapshot = box_of_devices(gpu(0), gpu(1))
    planned = PlannedDevices(snapshot, snapshot.devices)
    assert planned.within(box_of_devices(gpu(0))) is planned
    later = box_of_devices(gpu(0), gpu(1), busy(gpu(2)))
    assert planned.within(later).snapshot is later


def test_why_says_why_these(call: Call) -> None:
    plain = call("plan", "gpt2", "--demo", "rtx3090", "-n", "2", "--json")
    ended = call("plan", "gpt2", "--demo", "rtx3090", "-n", "2", "--json", "--why")
    assert ended.out == plain.out and not plain.err
    (why,) = lines_of(ended.err)
    assert why.startswith("GPU 2,3: ") and "NV4" in why


def test_more_devices_than_the_box_has_are_too_few(call: Call) -> None:
    call("plan", "gpt2", "-n", "20", "--demo").refused(4)


def test_a_lost_device_is_not_planned_with(call: Call) -> None:
    lost = call("ls", "--demo", "lost", "--json").json["devices"]
    gone = {each["uuid"] for each in lost if each["verdict"]["state"] == "lost"}
    assert gone and not gone & {*call("plan", "gpt2", "--demo", "lost", "--json").json["devices"]}


def test_gaudis_are_planned_with_in_groups_that_can_work_together(call: Call) -> None:
    document = call("plan", "gpt2", "--demo", "gaudi", "--json").json
    assert len(document["devices"]) == 4 and not any("in use" in notice for notice in document["notices"])
    words = ("pick", "-n", "auto", "--demo", "gaudi", "--model", "llama-3-8b", "--precision", "autocast")
    assert len(call(*words, "-b", "2").out.split(",")) in (2, 4)


def test_where_only_the_memory_is_known_that_is_planned_with(call: Call) -> None:
    document = call("plan", "gpt2", "--demo", "wsl", "--json").json
    assert len(document["devices"]) == 1 and not any("in use" in notice for notice in document["notices"])
    call("pick", "-n", "auto", "--demo", "wsl", "--model", "gpt2").refused(4)


@each_row("name", BOXES)
def test_every_box_can_be_planned_for(call: Call, name: str) -> None:
    document = call("plan", "gpt2", "--demo", name, "--json").json
    assert document["devices"] and any(row["fits"] for row in document["strategies"])


def test_the_driver_itself_is_asked(call: Call, nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["dgx-h100"])
    assert len(call("plan", "gpt2", "--json").json["devices"]) == 8


def test_measured_bandwidths_are_taken(call: Call, models: Path) -> None:
    uuids = call("plan", "gpt2", "-n", "2", "--demo", "rtx4090", "--json").json["devices"]
    copies = [{"source": a, "target": b, "gb_per_s": 2.0} for a, b in (uuids, uuids[::-1])]
    (models / "m.json").write_text(json.dumps({"measured": {"copies": copies}}))
    words = ("gpt2", "--gpus", ",".join(uuids), "--demo", "rtx4090")
    slow = call("plan", *words, "--measured", "m.json", "--json").json
    assert slow["strategies"][0]["seconds"] > rows(call, *words)["ddp"]["seconds"]
    assert not any("modelled" in notice for notice in slow["notices"])
    for text in ("", "[]", "{}", '{"measured": null}', '{"measured": {"copies": [{}]}}'):
        (models / "m.json").write_text(text)
        call("plan", *words, "--measured", "m.json").refused(2)


def test_bandwidths_that_were_measured_here_before_are_taken(call: Call, nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["rtx4090"])
    uuids = call("plan", "gpt2", "-n", "2", "--json").json["devices"]
    words = ("plan", "gpt2", "--gpus", ",".join(uuids), "--json")
    modelled = call(*words).json
    slow = dict.fromkeys((tuple(uuids), tuple(uuids[::-1])), 1.0)
    assert keep(os.environ, slow) is None and kept_bandwidths(os.environ) == slow
    assert keep(os.environ, {(uuids[0], uuids[1]): 2.0, ("GPU-other", uuids[0]): 9.0}) is None
    assert kept_bandwidths(os.environ)[uuids[0], uuids[1]] == 2.0 and len(kept_bandwidths(os.environ)) == 3
    measured = call(*words).json
    assert measured["strategies"][0]["seconds"] > modelled["strategies"][0]["seconds"]
    assert not any("modelled" in notice for notice in measured["notices"])
    # A file of nonsense is like no measurement.
    for text in ("", "[]", "[" * 100_000, '{"pairs": [{"source": "a"}]}', '{"pairs": 3}'):
        write_private(state_folder(os.environ) / "bandwidths.json", text)
        assert call(*words).json == modelled


# The trained parts


def test_the_command_says_what_the_call_does_not(call: Call) -> None:
    command = (
        "--",
        "torchrun",
        "t.py",
        "--model",
        "llama-2-7b",
        "--bf16",
        "--block_size",
        "512",
    )
    said = call("plan", "--demo", "dgx-h100", "--json", *command).json
    words = ("--precision", "autocast", "-s", "512", "--demo", "dgx-h100")
    assert said == call("plan", "llama-2-7b", *words, "--json").json
    assert said != call("plan", "-b", "8", "--demo", "dgx-h100", "--json", *command).json


@each_row(
    ("given", "means"),
    [
        ("", ("-b", "8", "--precision", "fp32")),
        ("--bf16", ("-b", "8", "--precision", "autocast")),
        ("--torch_dtype bfloat16", ("-b", "8", "--precision", "bf16")),
        ("--torch_dtype bfloat16 --bf16", ("-b", "8", "--precision", "bf16")),
        ("--per_device_train_batch_size 2 --fp16", ("-b", "2", "--precision", "fp16")),
    ],
)
def test_a_command_of_the_trainer_is_what_the_trainer_does(
    call: Call, given: str, means: tuple[str, ...]
) -> None:
    command = ("--", "train.py", "--model_name_or_path", "llama-2-7b", *given.split())
    said = call("plan", "--demo", "dgx-h100", "--json", *command).json
    assert said == call("plan", "llama-2-7b", *means, "--demo", "dgx-h100", "--json").json


def test_bf16_on_the_line_never_raises_the_need(call: Call) -> None:
    for model in ("gpt2", "llama-3.2-1b", "llama-3-70b"):
        command = ("--demo", "dgx-h100", "--", "train.py", "--model_name_or_path", model)
        plain, mixed = rows(call, *command), rows(call, *command, "--bf16")
        assert plain.keys() == mixed.keys()
        for name, row in mixed.items():
            assert row["bytes"]["total"] <= plain[name]["bytes"]["total"], (model, name)


def test_a_script_says_how_the_trainer_is_called(call: Call, models: Path) -> None:
    (models / "train.py").write_text(
        "from transformers import Trainer, TrainingArguments\n"
        "arguments = TrainingArguments('out', per_device_train_batch_size=4, bf16=True)\n"
    )
    said = call("plan", "gpt2", "--demo", "--json", "--", "python", "train.py").json
    assert said == call("plan", "gpt2", "-b", "4", "--precision", "autocast", "--demo", "--json").json


def test_what_the_call_says_comes_before_what_the_command_says(call: Call) -> None:
    command = ("--", "t.py", "--model", "llama-2-7b", "--batch_size", "4")
    one = call("plan", "gpt2", "-b", "2", "--demo", "--json", *command).json
    assert one["model"]["name"] == "gpt2"
    assert one == call("plan", "gpt2", "-b", "2", "--demo", "--json").json


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("accelerate launch --num_processes 3", "3 GPUs (--num_processes 3)"),
        ("accelerate launch --num_processes 8", ""),
    ],
)
def test_a_command_for_another_number_of_devices_is_noted(call: Call, command: str, said: str) -> None:
    words = (*command.split(), "train.py", "--model", "llama-2-7b")
    found = call("plan", "-n", "8", "--demo", "dgx-h100", "--json", "--", *words)
    notices = [text for text in found.json["notices"] if "the command is for" in text]
    assert len(notices) == bool(said) and said in "".join(notices)


@pytest.mark.parametrize(("count", "refused"), [(12, False), (8, True), (16, True)])
def test_sizes_that_accelerate_refuses_are_refused_as_at_the_launch(
    call: Call, models: Path, count: int, refused: bool
) -> None:
    sizes = {f"parallelism_config_{name}_size": size for name, size in (("tp", 3), ("dp_shard", 4))}
    kind = {"distributed_type": "FSDP", "num_processes": count}
    (models / "a.yaml").write_text(yaml.safe_dump({**kind, "parallelism_config": sizes}))
    options = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    for words in (["--config_file", "a.yaml"], ["--use_fsdp", "--use_parallelism_config", *options]):
        command = ("--demo", "dgx-2", "--", "accelerate", "launch", *words, "t.py", "--model", "gpt2")
        planned = call("plan", "-n", str(count), *command)
        launched = call("run", "--dry-run", "-n", str(count), "--force", *command)
        assert (planned.status, launched.status) == ((2, 2) if refused else (0, 0))
        why = planned.err.partition(";")[0]
        assert not refused or ("= 12" in why and why in launched.err)
    used = ("plan", "-n", str(count), "--use", "fsdp2", "--overwrite", *command)
    assert call(*used).status == 0


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("words", "noted"),
    [
        (("-n", "8", "--nodes", "2"), True),
        (("-n", "4", "--nodes", "2"), False),
        (("-n", "8", "--use", "ddp", "-o", "x"), True),
        (("-n", "4", "--use", "ddp", "-o", "x"), False),
        (("-n", "4", "--use", "single", "-o", "x"), True),
    ],
)
def test_another_number_is_noted_for_machines_and_for_files(
    call: Call, words: tuple[str, ...], noted: bool
) -> None:
    command = ("torchrun", "--nproc_per_node", "4", "train.py", "--model", "llama-2-7b")
    said = call("plan", *words, "--demo", "dgx-h100", "--", *command)
    assert said.status == 0 and ("for 4 GPUs (--nproc_per_node 4)" in said.err) == noted


def test_the_five_exchanges_of_dp_are_told_wherever_it_is_a_row(call: Call) -> None:
    words = ("plan", "llama-3-8b", "--demo", "dgx-h100")
    said = call(*words, "-n", "4", "--all").out
    assert all(each in said for each in ("dp ", "five exchanges", "inputs", "losses", "GPU 0 needs"))
    assert "five exchanges" not in call(*words, "-n", "1", "--all").out


def test_checkpointing_lora_and_a_smaller_batch_need_less(call: Call) -> None:
    def total(*words: str) -> int:
        return int(rows(call, "llama-3-8b", "--demo", "dgx-h100", *words)["fsdp2"]["bytes"]["total"])

    usual = total("-b", "4")
    assert total("-b", "2") < usual and total("-b", "4", "--checkpointing") < usual
    assert total("-b", "4", "--lora", "16") < usual and total("-b", "4", "-s", "1024") < usual


def test_options_of_the_planner_are_offered() -> None:
    assert request_options.PRECISIONS == PRECISIONS and set(request_options.OPTIMIZERS) == set(OPTIMIZERS)
    assert (request_options.PRECISIONS[0], request_options.OPTIMIZERS[0]) == ("bf16", "adamw")
    assert (Workload().batch, Workload().sequence) == (request_options.BATCH, request_options.SEQUENCE)


# Groups


def test_a_group_counts(call: Call) -> None:
    words = ("llama-3-8b", "--demo", "dgx-h100", "--group")
    assert [*rows(call, *words, "tp=4")] == ["tp4-fsdp2"]
    assert [*rows(call, *words, "pp=8")] == ["pp8", "pp8x2"]
    assert [*rows(call, *words, "pp=2")] == ["pp2-zero1"]
    assert [*rows(call, *words, "tp=4,pp=2")] == ["tp4-pp2"]
    assert [*rows(call, *words, "none")] == ["single"]
    assert [*rows(call, *words, "all")] == [*rows(call, "llama-3-8b", "--demo", "dgx-h100")]


@each_row(
    ("words", "status", "numbers"),
    [
        (("plan", "8B", "--group", "tp=8", "-n", "4"), 2, ("4", "8")),
        (("plan", "8B", "--group", "tp=8", "--gpus", "0,1,2"), 2, ("3", "8")),
        (("plan", "8B", "--group", "tp=8,pp=2"), 4, ("16", "8")),
        (("plan", "8B", "--group", "tp=8,pp=2", "-n", "auto"), 4, ("16", "8")),
        (("pick", "--parameters", "8B", "--group", "tp=8,pp=2", "-n", "auto"), 4, ("16", "8")),
        (("plan", "gpt2", "--group", "tp=8"), 2, ("8", "tp=8")),
    ],
)
def test_a_group_that_cannot_be_is_refused_with_both_numbers(
    call: Call, words: tuple[str, ...], status: int, numbers: tuple[str, str]
) -> None:
    said = call(*words, "--demo", "dgx-h100").refused(status)
    assert all(re.search(rf"\b{number}\b", said) for number in numbers), said


@pytest.mark.parametrize("name", ["pp2-zero2", "pp2-zero3", "tp2-pp2-fsdp2"])
def test_a_pipeline_with_another_stage_of_zero_is_refused(call: Call, name: str) -> None:
    said = call("plan", "llama-3-8b", "--demo", "dgx-h100", "--use", name, "--", "train.py").refused(2)
    assert "ZeRO-1 only" in said


def test_the_batch_is_said_with_its_product_and_the_precision_in_accelerates_word(call: Call) -> None:
    words = ("llama-3-8b", "--demo", "dgx-h100", "-b", "2", "--accumulation", "4", "--precision", "autocast")
    out = call("plan", *words).out
    assert (
        "global batch 64 = batch 2 × 4 accumulation steps × 8 GPUs" in out and "mixed_precision bf16" in out
    )
    document = call("plan", "--json", *words).json
    assert document["global_batch"] == 64
    assert document["workload"]["mixed_precision"] == "bf16" and document["workload"]["accumulation"] == 4


def test_a_plan_for_several_machines_says_what_their_network_is_taken_for(call: Call) -> None:
    words = ("plan", "llama-3-8b", "--demo", "dgx-h100", "-n", "8", "--nodes", "2")
    slow = call(*words)
    assert "2 machines, 10 Gbit/s, each 8× H100" in slow.out and "10 Gbit/s" in slow.err
    fast = call(*words, "--network", "3200", "--json").json
    assert fast["nodes"] == 2 and len(fast["devices"]) == 8
    assert fast["global_batch"] == 16 and {row["devices"] for row in fast["strategies"]} == {1, 16}
    assert any("links between machines are fast" in notice for notice in fast["notices"])


@each_row(
    "words",
    [
        ("--nodes", "2", "--use", "ddp", "--", "train.py"),
        ("--nodes", "2", "-n", "auto"),
        ("--network", "10"),
        ("--nodes", "2", "--network", "0"),
        ("--nodes", "2", "--network", "fast"),
        ("--nodes", "65"),
    ],
)
def test_machines_that_cannot_be_planned_for_are_refused(call: Call, words: tuple[str, ...]) -> None:
    call("plan", "8B", "--demo", "dgx-h100", *words).refused(2)


# Wrong calls


@each_row(
    "words",
    [
        ["nothing"],
        [""],
        ["/"],
        ["."],
        ["gpt2", "8B"],
        ["gpt2", "--model", "8B"],
        ["gpt2", "--parameters", "8B"],
        ["--parameters", "-5"],
        ["--parameters", "0"],
        ["--parameters", "many"],
        ["gpt2", "-b", "0"],
        ["gpt2", "-b", "-1"],
        ["gpt2", "-b", "x"],
        ["gpt2", "-s", "0"],
        ["gpt2", "-s", "99999999999"],
        ["gpt2", "--lora", "-8"],
        ["gpt2", "--accumulation", "0"],
        ["gpt2", "--precision", "int4"],
        ["gpt2", "--optim", "none"],
        ["gpt2", "--gpus", "none"],
        ["gpt2", "--gpus", "99"],
        ["gpt2", "-n", "0"],
        ["gpt2", "-o", "x"],
        ["gpt2", "--overwrite"],
        ["gpt2", "--use", "ddp"],
        ["--use", "ddp", "--", "t.py"],
        ["--", "t.py", "--model", "nothing"],
        ["8B", "--prove"],
        ["8B", "--nodes", "2", "--rendezvous", "node0"],
        ["8B", "--rendezvous", "node0"],
        ["8B", "--processes", "2"],
        ["8B", "--threads", "near"],
        ["8B", "--use", "ddp", "--threads", "near", "--", "t.py"],
        ["gpt2", "--measured", "nothing.json"],
        [],
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(call: Call, words: list[str]) -> None:
    call("plan", "--demo", *words).refused(2)


def test_a_truncated_header_and_a_huge_file_are_refused(call: Call, models: Path) -> None:
    (models / "cut.safetensors").write_bytes((1000).to_bytes(8, "little") + b'{"a": ')
    call("plan", "cut.safetensors", "--demo").refused(2)
    with (models / "huge.json").open("wb") as file:
        file.truncate(2 << 30)
    call("plan", "huge.json", "--demo").refused(2)


def test_a_hub_id_that_is_not_cached_says_what_fetches_its_configuration(call: Call) -> None:
    for name in ("Qwen/Qwen3-8B", "gpt2-xl"):
        said = call("plan", name, "--demo").refused(2)
        assert f"hf download {name} config.json" in said
    # A name that can be no hub id is not to be fetched.
    assert "hf download" not in call("plan", "/nowhere/else", "--demo").refused(2)


def test_the_examples_of_the_readme_need_no_cache(call: Call) -> None:
    page = (Path(__file__).parents[2] / "README.md").read_text()
    typed = re.findall(r"^gputui plan .*?(?= {2,}#|$)", page, re.MULTILINE)
    for line in typed:
        assert call(*shlex.split(line)[1:], "--demo", "dgx-h100").status == 0, line
    assert typed


def test_a_name_that_would_move_the_cursor_is_shown_harmless(call: Call) -> None:
    call("plan", "a\x1b[2Jb\n", "--demo").refused(2)
    call("plan", "\ud800", "--demo").refused(2)


def test_an_unknown_architecture_says_what_to_give_instead(call: Call, models: Path) -> None:
    python = models / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    said = call("plan", "strange", "--python", str(python), "--demo").refused(2)
    assert "8B" in said and "--parameters" not in said and "strange" in said


def test_a_proof_by_a_python_that_cannot_is_a_failed_check(call: Call, models: Path) -> None:
    python = models / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    ended = call("plan", "gpt2", "--demo", "-n", "2", "--prove", "--python", str(python))
    assert ended.status == 5 and "gpt2  " in ended.out
    assert any(line.startswith("warning: ") for line in lines_of(ended.err))


@pytest.mark.parametrize("words", [("--parameters", "7B"), ("7B",), ("--parameters", "7000000000")])
def test_a_given_number_of_parameters_is_said_once(call: Call, words: tuple[str, ...]) -> None:
    (line,) = [each for each in call("plan", "--demo", *words).out.splitlines() if "(given)" in each]
    assert line.startswith(f"{words[-1]} ") and "7,000" not in line and "parameters" in line


@pytest.mark.parametrize(("parameters", "status"), [(124_439_808, 0), (124_000_000, 5)])
def test_a_proof_is_a_table_of_both_counts(call: Call, models: Path, parameters: int, status: int) -> None:
    answer = {
        "versions": {"transformers": "5.23.0"},
        "architecture": "GPT2LMHeadModel",
        "parameters": parameters,
        "largest_layer": 38_597_376,
        "wrap_class": "GPT2Block",
        "blocks": 12,
        "largest_block": 7_087_872,
    }
    (models / "model.json").write_text(json.dumps(answer))
    missing = "ModuleNotFoundError: No module named 'deepspeed'"
    lacks = (f'echo "{missing}" > "$2/{part}.error"\n' for part in ("estimates", "tracked"))
    python = models / "python"
    python.write_text(f'#!/bin/sh\ncp {models}/model.json "$2"\n{"".join(lacks)}')
    python.chmod(0o755)
    ended = call("plan", "gpt2", "--demo", "-n", "2", "--prove", "--python", str(python))
    cells = {line.split()[0]: line.split()[1:] for line in ended.out.splitlines() if line.strip()}
    assert ended.status == status and cells["CLOSED"] == ["FORM", "THAT", "PYTHON", "DIFFERENCE"]
    assert cells["largest_layer"] == ["38,597,376", "38,597,376", "equal"]
    assert cells["parameters"][:2] == ["124,439,808", f"{parameters:,}"]


def test_a_model_is_looked_up_in_the_cache_that_the_command_will_have(call: Call, models: Path) -> None:
    snapshot = models / "home" / "hub" / "models--a--b" / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(MODELS["llama-3-70b"]))
    command = (f"HF_HOME={models / 'home'}", "t.py", "--model_name_or_path", "a/b", "--lr", "1")
    document = call("plan", "--demo", "--json", "--", *command).json
    assert document["model"]["parameters"] == 70_553_706_496
    ended = call("run", "-n", "1", "--demo", "rtx4090", "--dry-run", "--", *command)
    assert "not fit" in ended.err


def test_no_driver_is_status_3(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert call("plan", "gpt2").status == 3


# --use


def used(call: Call, strategy: str, *words: str) -> str:
    """The launch line of a strategy on the first devices of a box."""
    ended = call("plan", "gpt2", "--use", strategy, "-o", "plan", "--demo", "dgx-h100", *words)
    assert ended.status == 0, ended
    return ended.out.rstrip("\n")


def test_files_are_written_and_the_line_is_the_one_that_run_would_start(call: Call, models: Path) -> None:
    line = used(call, "fsdp2", "-n", "2", "--", "train.py", "--lr", "1")
    config = yaml.safe_load((models / "plan" / "accelerate.yaml").read_text())
    assert config["num_processes"] == 2 and config["fsdp_config"]["fsdp_version"] == 2
    assert config["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] == "GPT2Block"
    command = shlex.split(line)[2:]
    visible = dict(word.split("=", 1) for word in shlex.split(line)[:2])["CUDA_VISIBLE_DEVICES"]
    ran = call("run", "--gpus", visible, "--demo", "dgx-h100", "--dry-run", "--", *command)
    assert ran.out.rstrip("\n") == line


def test_checkpointing_of_the_command_is_in_the_file_instead(call: Call, models: Path) -> None:
    line = used(call, "fsdp2", "-n", "2", "--", "train.py", "--gradient_checkpointing", "--lr", "1")
    assert "checkpointing" not in line and line.endswith("train.py --lr 1")
    config = yaml.safe_load((models / "plan" / "accelerate.yaml").read_text())
    assert config["fsdp_config"]["fsdp_activation_checkpointing"] is True


@pytest.mark.parametrize(
    ("strategy", "program", "count"),
    [("ddp", "torchrun", 4), ("single", "train.py", 1), ("zero3", "accelerate", 4), ("tp2", "accelerate", 4)],
)
def test_each_strategy_has_its_launcher_and_its_devices(
    call: Call, strategy: str, program: str, count: int
) -> None:
    words = shlex.split(used(call, strategy, "-n", "4", "--", "train.py"))
    visible = dict(word.split("=", 1) for word in words[:2])["CUDA_VISIBLE_DEVICES"]
    assert len(visible.split(",")) == count
    assert any(Path(word).name == program for word in words[2:])


def test_other_files_are_not_overwritten_unasked(call: Call, models: Path) -> None:
    used(call, "fsdp2", "-n", "2", "--", "train.py")
    words = ("plan", "gpt2", "--use", "zero3", "-o", "plan", "-n", "2", "--demo", "dgx-h100")
    call(*words, "--", "train.py").refused(2)
    assert "fsdp_config" in (models / "plan" / "accelerate.yaml").read_text()
    assert call(*words, "--overwrite", "--", "train.py").status == 0
    assert "deepspeed_config" in (models / "plan" / "accelerate.yaml").read_text()


@pytest.mark.parametrize("strategy", ["pp2", "tp3", "tp2-fsdp2", "ddp2", "", "zero"])
def test_a_strategy_that_cannot_be_written_is_refused(call: Call, models: Path, strategy: str) -> None:
    words = ("plan", "gpt2", "--use", strategy, "-o", "plan", "-n", "2", "--demo", "rtx4090", "--", "t.py")
    call(*words).refused(2)
    assert not (models / "plan").exists()


def test_files_without_a_folder_are_in_the_same_one_as_on_the_screen(call: Call, models: Path) -> None:
    (models / "work").mkdir()
    for words, place in (((), models), (("--directory", "work"), models / "work")):
        words = ("plan", "gpt2", "--use", "zero2", "-n", "2", "--demo", *words)
        assert call(*words, "--", "t.py").status == 0
        assert (place / "gputui-plan" / "accelerate.yaml").is_file()


def test_a_folder_that_cannot_be_written_is_refused(call: Call, models: Path) -> None:
    (models / "file").write_text("")
    call("plan", "gpt2", "--use", "zero2", "-o", "file", "-n", "2", "--demo", "--", "t.py").refused(2)


@pytest.mark.parametrize("where", ["", "gputui-plan", "mine"], ids=["above", "default", "named"])
def test_no_file_is_written_that_others_could_change_before_the_command_reads_it(
    call: Call, models: Path, where: str
) -> None:
    folder = models / (where or "gputui-plan")
    folder.mkdir()
    named = ("-o", where) if where == "mine" else ()
    words = ("plan", "gpt2", "--use", "fsdp2", *named, "-n", "2", "--demo", "--", "t.py")
    (models / where).chmod(0o777)
    ended = call(*words)
    ended.refused(2)
    assert f"other users can write to {str(models / where)!r}" in ended.err and not [*folder.iterdir()]
    # In a folder like /tmp, others cannot exchange what is ours; a group that shares a project is trusted.
    for mode in (0o1777, 0o2775):
        (models / where).chmod(mode)
        assert call(*words).status == 0


def test_a_strategy_that_does_not_fit_is_written_with_a_warning(call: Call) -> None:
    words = ("plan", "llama-3-8b", "--use", "ddp", "-n", "2", "--demo", "rtx4090", "--", "t.py")
    ended = call(*words)
    assert ended.status == 0 and any(line.startswith("warning: ddp") for line in lines_of(ended.err))


# -n auto


@pytest.mark.parametrize("demanded", [None, 75 * GIB])
def test_the_memory_that_a_call_demands_counts_where_the_training_needs_less(demanded: int | None) -> None:
    devices = DeviceRequest(auto=True, min_free=demanded, demo="dgx-h100")
    asked = LaunchRequest(LaunchOptions(), devices, ModelRequest("gpt2"))
    least = settle_auto(asked).devices.min_free
    assert least is not None and (least == demanded or (demanded is None and 0 < least < 75 * GIB))


def test_as_many_devices_as_it_needs_are_taken(call: Call) -> None:
    def picked(*words: str) -> int:
        return len(call("pick", "-n", "auto", "--demo", "dgx-h100", *words).out.split(","))

    assert picked("--model", "gpt2") == 1
    assert picked("--model", "llama-3-8b", "--precision", "autocast") == 2
    assert picked("--parameters", "8B", "--precision", "autocast") == 2
    assert picked("--model", "llama-3-8b", "--precision", "autocast", "-b", "2") > 2


def test_where_nothing_does_the_call_says_what_would(call: Call) -> None:
    for words in (("pick", "-n", "auto", "--model"), ("plan", "-n", "auto")):
        said = call(*words, "llama-3-70b", "--precision", "bf16", "--demo", "dgx-h100").refused(4)
        assert "checkpointing" in said and "LoRA" in said
    command = ("--", "t.py", "--model", "llama-3-70b")
    call("run", "-n", "auto", "--demo", "rtx4090", "--dry-run", *command).refused(4)


def test_run_reads_the_model_from_its_command(call: Call) -> None:
    command = ("torchrun", "t.py", "--model", "llama-3-8b", "--bf16", "--block_size", "1024")
    ended = call("run", "-n", "auto", "--demo", "dgx-h100", "--dry-run", "--", *command)
    assert ended.status == 0 and "--nproc-per-node=2" in ended.out
    exported = call("export", "-n", "auto", "--as", "json", "--demo", "dgx-h100", "--", *command)
    assert len(json.loads(exported.out)["devices"]) == 2


@pytest.mark.parametrize(
    "command", [["t.py"], ["t.py", "--model", "resnet50"], ["t.py", "--model", "strange"]]
)
def test_auto_without_a_model_that_is_known_is_a_wrong_call(call: Call, command: list[str]) -> None:
    words = ("run", "-n", "auto", "--demo", "--dry-run", "--python", "/nowhere/python", "--")
    call(*words, *command).refused(2)


def test_a_number_in_the_command_is_the_only_one_that_is_tried(call: Call) -> None:
    command = ("--", "torchrun", "--nproc-per-node", "4", "t.py", "--model", "gpt2")
    ended = call("run", "-n", "auto", "--demo", "dgx-h100", "--dry-run", *command)
    assert ended.status == 0 and len(ended.out.split()[1].split(",")) == 4
    command = ("--", "torchrun", "--nproc-per-node", "2", "t.py", "--model", "llama-3-70b")
    call("run", "-n", "auto", "--demo", "dgx-h100", "--dry-run", *command).refused(4)


def test_waiting_counts_the_devices_in_use(call: Call, nvml_here: SimulatedNvml) -> None:
    nvml_here.show(box_of_devices(busy(gpu(0)), busy(gpu(1))))
    words = ("pick", "-n", "auto", "--model", "llama-3-8b")
    call(*words).refused(4)
    assert call(*words, "--wait", "0").status == 124


def test_a_job_in_line_waits_for_as_many_as_it_needs(box: Box) -> None:
    holder = box.hold(*range(8))
    waiting = ("run", "-q", "--detach", "--wait", "--window", "0")
    model = ("-n", "auto", "--parameters", "8B", "--precision", "autocast")
    _, out, _ = box.call(*waiting, *model, "--", "true")
    until(lambda: waiters(box.environ))
    holder.kill()
    assert box.call("jobs", "wait", out.strip())[0] == 0
    (job,) = json.loads(box.call("jobs", "--json")[1])["jobs"]
    assert len(job["devices"]) == 2


def test_small_devices_are_passed_over() -> None:
    small = [gpu(i, memory_free=20 * GIB) for i in range(4)]
    large = [gpu(i, memory_free=80 * GIB) for i in (4, 5)]
    snapshot = box_of_devices(*small, *large)
    workload = Workload(precision="autocast")
    found = fewest(LLAMA3_8B, workload, snapshot, snapshot.devices)
    assert found is not None and {each.index for each in found.devices} == {4, 5}
    assert found.needed <= 80 * GIB
    assert fewest(LLAMA3_70B, workload, snapshot, snapshot.devices) is None
    assert fewest(LLAMA3_8B, workload, snapshot, snapshot.devices, counts=(1,)) is None
    assert fewest(LLAMA3_8B, workload, snapshot, ()) is None


def test_no_set_is_searched_where_no_devices_of_that_number_have_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Among 256 devices, each search takes a quarter of a second: a recording made `-n auto` take minutes."""
    searched = []
    monkeypatch.setattr(
        "gputui.planning.fewest.best",
        lambda snapshot, roomy, count, *rest, **more: searched.append(count) or best(snapshot, roomy, count),
    )
    snapshot = box_of_devices(*(gpu(i, memory_free=80 * GIB) for i in range(4)))
    # (The states alone fit on two devices.)
    assert fewest(LLAMA3_8B, Workload(batch=512, sequence=8192), snapshot, snapshot.devices) is None
    assert searched == []
    found = fewest(LLAMA3_8B, Workload(precision="autocast"), snapshot, snapshot.devices)
    assert found is not None and searched == [len(found.devices)]


def test_instances_are_in_no_set_of_several() -> None:
    divided = gpu(0, mig=True)
    parts = [instance(divided, place, memory_total=40 * GIB, memory_free=40 * GIB) for place in range(4)]
    whole = [gpu(index, memory_total=24 * GIB, memory_free=24 * GIB) for index in (1, 2, 3, 4)]
    snapshot = box_of_devices(divided, *parts, *whole)
    workload = Workload(precision="autocast", lora=16)
    assert fewest(LLAMA3_8B, workload, snapshot, parts, counts=(1,)) is not None
    assert fewest(LLAMA3_8B, Workload(precision="autocast"), snapshot, parts) is None
    found = fewest(LLAMA3_8B, workload, snapshot, [*parts, *whole], counts=(2, 3, 4))
    assert found is not None and all(each.parent is None for each in found.devices)


def test_a_device_of_unknown_memory_is_not_counted() -> None:
    snapshot = box_of_devices(gpu(0, memory_free=None), gpu(1))
    found = fewest(LLAMA3_8B, Workload(lora=16), snapshot, snapshot.devices)
    assert found is not None and [each.index for each in found.devices] == [1]


# The warning of `run`


def test_run_warns_where_the_devices_cannot_hold_the_model(call: Call) -> None:
    def warned(*words: str, box: str = "rtx4090", count: str = "1") -> bool:
        ended = call("run", "-n", count, "--demo", box, "--dry-run", "--", *words)
        assert ended.status == 0 and ended.out
        return any(line.startswith("warning: ") and "not fit" in line for line in lines_of(ended.err))

    assert warned("python", "train.py", "--model_name_or_path", "llama-3-8b")
    assert not warned("python", "train.py", "--model_name_or_path", "llama-3-8b", box="dgx-h100")
    assert not warned("python", "train.py", "--model_name_or_path", "gpt2")
    assert warned("torchrun", "train.py", "--model", "llama-3-70b", count="4")
    assert not warned("python", "train.py", "--model", "llama-3-8b", "--use_peft")
    # The weights alone fit; servers and scripts that only compute with the model need no more.
    assert not warned("vllm", "serve", "llama-3-8b") and not warned("eval.py", "--model", "llama-3-8b")
    assert warned("vllm", "serve", "llama-3-70b") and warned("eval.py", "--model", "llama-3-70b")
    assert not warned("vllm", "serve", "llama-3-70b", "--quantization", "awq")
    assert not warned("deepspeed", "train.py", "--model", "llama-3-8b")
    assert not warned("python", "train.py", "--model", "llama-3-8b", "--optim", "adafactor")
    for name in ("strange", "nothing", "8B", "", "..", "a/b/c"):
        assert not warned("train.py", "--model", name)


def test_a_model_of_packed_weights_is_not_judged(call: Call, models: Path) -> None:
    config = models / "llama-3-70b" / "config.json"
    config.write_text(json.dumps(MODELS["llama-3-70b"] | {"quantization_config": {"bits": 4}}))
    ended = call("run", "-n", "1", "--demo", "rtx4090", "--dry-run", "--", "vllm", "serve", "llama-3-70b")
    assert ended.status == 0 and not ended.err


# The answer


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stdout of a call is a terminal of 80 columns."""
    monkeypatch.setattr("gputui.cli.plan.output_width", lambda: 80)


def called(ended: Ended) -> list[str]:
    """The call that a plan proposes."""
    return next(shlex.split(line)[1:] for line in ended.out.splitlines() if line.startswith("  gputui "))


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    "words", ["gpt2 -n 2", "llama-3-8b --checkpointing", "8B -n 4 --lora 16 -b 2", "gpt2 -n 1", "8B -n auto"]
)
def test_the_answer_comes_first_with_the_call_that_starts_it(call: Call, words: str) -> None:
    asked = ("plan", *words.split(), "--demo", "dgx-h100")
    ended = call(*asked)
    best = next(row for row in call(*asked, "--json").json["strategies"] if row["fits"])
    first = ended.out.splitlines()[0]
    assert first.startswith(f"Use {best['name']} on {best['devices']} GPU") and "to spare" in first
    proposed = [word if word != "COMMAND" else "train.py" for word in called(ended)]
    started = call(*proposed)
    assert started.status == 0 and "train.py" in started.out
    assert started.out.count("GPU-") in (0, best["devices"])


@each_row(
    ("words", "enough"),
    [
        ("gpt2", True),
        ("gpt2 -n 2", True),
        ("gpt2 -n 1", False),
        ("gpt2 -n auto", False),
        ("8B --precision fp32", False),
    ],
)
def test_where_one_device_is_enough_the_answer_says_so(call: Call, words: str, enough: bool) -> None:
    ended = call("plan", *words.split(), "--demo", "shared")
    assert ("fits on one" in ended.out.splitlines()[0]) is enough


def test_the_proposed_call_has_the_command(call: Call) -> None:
    command = ("--", "torchrun", "t.py", "--model", "llama-2-7b", "--note", "a b; $c")
    proposed = called(call("plan", "--demo", "dgx-h100", *command))
    assert proposed[-len(command) :] == [*command] and call(*proposed).status == 0
    hostile = call("plan", "--demo", "dgx-h100", *command, "--title", "\x1b[2J\u202e")
    assert all(line.isprintable() for line in hostile.out.splitlines())


@pytest.mark.usefixtures("terminal")
def test_where_nothing_fits_the_answer_says_what_would(call: Call) -> None:
    words = ("plan", "llama-3-70b", "--demo", "rtx3090")
    ended = call(*words)
    first = " ".join(ended.out.partition("\n\n")[0].split())
    changes = [text for text in call(*words, "--json").json["notices"] if text.startswith("would fit with ")]
    assert first.startswith("Nothing fits") and "gputui plan" not in first
    assert changes and all(text.removeprefix("would fit with ") in first for text in changes)
    assert not any(text in ended.err for text in changes)


@pytest.mark.parametrize(
    "words", [("llama-3-70b", "--demo", "wsl"), ("--demo", "laptop", "--", "vllm", "serve", "llama-3-8b")]
)
def test_where_nothing_would_help_the_answer_says_what_lacks(call: Call, words: tuple[str, ...]) -> None:
    first = call("plan", *words).out.splitlines()[0]
    assert first.startswith("Nothing fits") and re.search(r"missing is \d+\.\dG of each \(\S+\)$", first)


def _about(ended: Ended) -> tuple[str, str]:
    """The answer, and the line of the devices."""
    lines = ended.out.splitlines()
    return lines[0], next(line for line in lines if "free on each" in line)


def test_devices_in_use_are_named_in_the_answer(call: Call, save: Callable[[Snapshot], str]) -> None:
    box = save(box_of_devices(gpu(0), busy(gpu(1))))
    assert all(
        "once GPU 1 is free" in line for line in _about(call("plan", "gpt2", "-n", "2", "--from", box))
    )
    assert "free:" not in call("plan", "gpt2", "-n", "1", "--from", box).out.splitlines()[0]


def test_states_are_in_32_bits_by_default_and_what_nothing_says_is_told_as_assumed(call: Call) -> None:
    words = ("plan", "--demo", "dgx-h100", "-n", "2", "-b", "4", "--", "t.py", "--model", "llama-3-8b")
    about = " ".join(call(*words, "--lora_r=8").out.split("\n\n")[1].split())
    said, _, assumed = about.partition("assumed:")
    assert "batch 4" in said and "LoRA 8" in said and "autocast" in assumed and "sequence" in assumed
    single = rows(call, "llama-3-8b", "-n", "1", "--demo", "dgx-h100")["single"]["bytes"]
    states = single["weights"] + single["gradients"] + single["optimizer"]
    assert states == 16 * LLAMA3_8B.parameters


def test_where_free_memory_is_not_known_the_answer_says_so(
    call: Call, save: Callable[[Snapshot], str]
) -> None:
    ended = call("plan", "gpt2", "--from", save(box_of_devices(gpu(0, memory_free=None, memory_total=None))))
    assert ended.out.startswith("Free memory is not known") and "  gputui" not in ended.out


def test_several_machines_have_an_answer_without_a_call(call: Call) -> None:
    ended = call("plan", "llama-3-8b", "--demo", "dgx-h100", "--nodes", "2", "--network", "400")
    assert ended.out.startswith("Use ") and " on 16 GPUs: " in ended.out and "  gputui" not in ended.out


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("box", ["rtx3090", "dgx-h100", "gaudi", "apple", "amd", "full", "gb10"])
def test_a_plan_fits_into_a_terminal_of_80_by_24(call: Call, box: str) -> None:
    for model in ("gpt2", "llama-2-7b", "llama-3-8b", "llama-3-70b", "llama-3.2-1b", "8B"):
        for more in ((), ("--checkpointing", "--precision", "autocast"), ("--lora", "16", "-s", "16384")):
            ended = call("plan", model, "--demo", box, *more)
            lines = ended.out.splitlines()
            assert len(lines) <= 20, (model, more)
            # The notes are below it: with the call and the prompt, the answer stays in view.
            notes = ended.err.splitlines()
            assert all(len(note) <= 80 for note in notes) and len(lines) + len(notes) <= 22, (model, more)
            # The call is to be copied whole.
            lines = [line for line in lines if not line.startswith("  gputui ")]
            assert ended.status == 0 and max(map(len, lines)) <= 80 and not any("…" in line for line in lines)


@pytest.mark.usefixtures("terminal")
def test_the_rest_of_the_table_is_there_on_request(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("plan", "llama-3-8b", "--demo", "rtx3090")
    short, whole = call(*words).out, call(*words, "--all").out
    assert "--all" in short and "--all" not in whole
    for text in ("OPTIM", "SENT", "pp4x2", "DeepSpeed's estimates"):
        assert text in whole and text not in short
    monkeypatch.setattr("gputui.cli.plan.output_width", lambda: None)
    # A pipe has the columns and the strategies of a terminal, in lines of any length.
    assert (
        " ".join(call(*words).out.split()) == " ".join(short.split()) and call(*words, "--all").out == whole
    )


def test_the_effect_of_a_strategy_is_told_once(call: Call) -> None:
    assert call("plan", "8B", "-n", "2", "--demo", "shared", "--all").out.count("five exchanges") == 1


# The table


@each_row("width", [60, 80, 120, 160])
@each_row("free", [24 * GIB, 80 * GIB, None])
def test_the_table_keeps_to_the_width(width: int, free: int | None) -> None:
    snapshot = replace(
        box_of_devices(*(gpu(i, memory_free=free) for i in range(8))),
        host=Host("h", load=HostLoad(memory_used=0, memory_total=512 * GIB)),
    )
    made = plan(LLAMA3_8B, Workload(lora=16, checkpointing=True), box_of(snapshot, snapshot.devices))
    found = PlannedDevices(snapshot, snapshot.devices)
    lines = [*table_lines(made, found, (), width, whole=False)]
    assert max(map(len, lines)) <= width
    assert width < 80 or not any("…" in line for line in lines)
    for whole in (False, True):
        rows = [line for line in table_lines(made, found, (), width, whole) if line[:1] in ("✓", "✗", "?")]
        assert all(line[2:].startswith(f"{row.name} ") for line, row in zip(rows, made.rows, strict=False))
        assert (len(rows) == len(made.rows)) == whole


def test_what_stands_below_slower_ones_says_why() -> None:
    snapshot = replace(
        box_of_devices(*(gpu(i, memory_free=80 * GIB) for i in range(4)), links=_all("NV18", 4)),
        host=Host("h", load=HostLoad(memory_used=0, memory_total=2000 * GIB)),
    )
    made = plan(
        LLAMA3_8B,
        Workload(precision="bf16"),
        replace(box_of(snapshot, snapshot.devices), host_memory=2000 * GIB),
    )
    lines = {
        line[2:].split()[0]: line
        for line in table_lines(made, PlannedDevices(snapshot, snapshot.devices), (), 80, whole=False)
        if line[:1] == "✓"
    }
    said = {
        "tp2-fsdp2": "share a batch",
        "single": "one device",
        "ddp": "tight",
        "zero2-offload": "waits for the host",
        "zero3-offload": "waits for the host",
        "pp4": "program",
    }
    assert made.best is not None and not made.best.apart
    apart = {row.name: row.apart for row in made.rows if row.fits and row.apart}
    slowest = max(row.traffic.seconds or 0 for row in made.rows if row.fits and not row.apart)
    assert all(words in apart[name] for name, words in said.items())
    assert any((row.traffic.seconds or 0) < slowest for row in made.rows if row.name in said)
    shown = apart.keys() & lines.keys()
    assert shown and all(apart[name] in lines[name] for name in shown)
    effects = {row.name: row.what for row in made.rows if row.name in lines.keys() - shown}
    assert effects and all(what.split(",")[0].split(":")[0] in lines[name] for name, what in effects.items())


def test_the_table_says_of_each_strategy_whether_it_fits(call: Call) -> None:
    ended = call("plan", "llama-2-7b", "--precision", "autocast", "--demo", "dgx-h100", "--all")
    marks = {line.split()[1]: line[0] for line in ended.out.splitlines() if line[:1] in ("✓", "✗")}
    assert marks["fsdp2"] == "✓" and marks["ddp"] == "✗"
    assert "6,738,415,616" in ended.out and "zero3" in ended.out


@pytest.mark.usefixtures("terminal")
def test_the_table_in_the_documentation_is_the_one_that_is_shown(call: Call) -> None:
    page = (Path(__file__).parents[2] / "docs" / "planning.md").read_text()
    typed, shown = re.search(r"```sh\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL).groups()  # type: ignore[union-attr]
    assert call(*shlex.split(typed)[1:]).out == shown


def test_where_auto_finds_too_few_the_host_memory_that_would_do_is_said(call: Call) -> None:
    said = call("pick", "-n", "auto", "--parameters", "7B", "--demo", "rtx3090").refused(4)
    assert "host memory (zero3-offload)" in said
