"""The decisions of a plan: the strategies that fit, their order, and remedies for the others."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.choosing.grouping import Grouping
from gputui.inventory.formatting import GIB
from gputui.planning.box import Box, box_of
from gputui.planning.closed_forms import FAMILIES
from gputui.planning.document import to_document
from gputui.planning.estimators import estimates
from gputui.planning.memory import host_needed, needed
from gputui.planning.model import Model, PlanningError
from gputui.planning.plan import Plan, Remedy, Row, plan
from gputui.planning.reading import of_parameters
from gputui.planning.strategies import Strategy
from gputui.planning.traffic import traffic
from gputui.planning.workload import OPTIMIZERS, PRECISIONS, Workload
from gputui.sources.simulated.source import named
from gputui.sources.source import Want
from unit.planning_models import (
    GPT2,
    LLAMA2_7B,
    LLAMA3_8B,
    LLAMA3_70B,
    LLAMA32_1B,
    box,
    h100s,
    llama_like,
    model,
    rtx_3090s,
)

AUTOCAST = Workload(precision="autocast")
BF16 = Workload(precision="bf16")
STATES = replace(AUTOCAST, weights_only=True)


def row(found: Plan, name: str) -> Row:
    return next(each for each in found.rows if each.name == name)


def names(found: Plan) -> list[str]:
    return [each.name for each in found.rows]


def gib(found: Plan, name: str) -> float:
    return row(found, name).bytes.total / GIB


def simulated(name: str) -> Box:
    source = named(name)
    source.open()
    snapshot = source.read(Want.ALL | Want.DETAILS)
    return replace(box_of(snapshot, snapshot.devices), host_memory=512 * GIB)


# Decisions


def test_where_times_are_equal_what_needs_less_stands_first() -> None:
    found = plan(GPT2, Workload(precision="bf16", sequence=1024), rtx_3090s(2))
    equal = [row(found, name) for name in ("ddp", "zero1", "zero2")]
    assert len({each.traffic.seconds for each in equal}) == 1
    equal.sort(key=lambda each: each.bytes.total)
    assert [each for each in found.rows if each in equal] == equal


def test_what_a_step_sends_is_of_all_passes_that_accumulate() -> None:
    """ZeRO-1 reduces once a step, FSDP2 gathers in each pass: a preference does not rank FSDP2 first."""
    found = plan(LLAMA3_8B, Workload(precision="bf16", accumulation=32), h100s(4))
    assert row(found, "zero1").fits and row(found, "fsdp2").fits
    assert row(found, "fsdp2").traffic.bytes > 40 * row(found, "zero1").traffic.bytes
    assert names(found).index("zero1") < names(found).index("fsdp2")


def test_where_no_time_is_known_what_is_sent_decides() -> None:
    known = box(4, 79 * GIB, "NV18", None, 1000 * GIB)
    found = plan(LLAMA32_1B, AUTOCAST, known)
    sent = [each.traffic.bytes for each in found.rows if each.fits and not each.apart]
    assert {each.traffic.seconds for each in found.rows} <= {None, 0.0}
    assert len(sent) > 3 and sent == sorted(sent)


@pytest.mark.parametrize("checkpointing", [True, False])
def test_a_model_that_fills_one_device_does_not_leave_room_for_ddps_buckets(checkpointing: bool) -> None:
    found = plan(LLAMA32_1B, replace(AUTOCAST, checkpointing=checkpointing), rtx_3090s(2))
    assert row(found, "single").fits and not row(found, "ddp").fits
    assert found.best is not None and found.best.name in ("zero1", "zero2")


def test_7b_on_8_h100_is_too_large_to_replicate_and_not_to_shard() -> None:
    found = plan(LLAMA2_7B, STATES, h100s())
    assert gib(found, "ddp") == pytest.approx(100.4, abs=0.1) and not row(found, "ddp").fits
    whole = plan(LLAMA2_7B, replace(AUTOCAST, sequence=4096), h100s())
    assert row(whole, "fsdp2").fits and row(whole, "zero2").fits and not row(whole, "ddp").fits


def test_8b_on_4_3090_fits_nowhere_but_in_part() -> None:
    found = plan(LLAMA3_8B, AUTOCAST, rtx_3090s())
    assert found.best is None
    assert gib(plan(LLAMA3_8B, STATES, rtx_3090s()), "fsdp2") == pytest.approx(29.9, abs=0.05)
    assert "lora" in {remedy.field for each in found.rows for remedy in each.remedies}
    said = " ".join(found.told)
    assert "LoRA" in said and "zero3-offload" in said


def test_offload_fits_where_the_host_has_the_memory_for_it() -> None:
    few = plan(LLAMA3_8B, AUTOCAST, rtx_3090s())
    much = plan(LLAMA3_8B, AUTOCAST, replace(rtx_3090s(), host_memory=512 * GIB))
    unknown = plan(LLAMA3_8B, AUTOCAST, replace(rtx_3090s(), host_memory=None))
    assert [row(each, "zero3-offload").fits for each in (few, much, unknown)] == [False, True, False]
    assert much.best is not None and much.best.name == "zero3-offload"


def test_70b_does_not_fit_on_8_h100() -> None:
    assert gib(plan(LLAMA3_70B, STATES, h100s()), "fsdp2") == pytest.approx(131.4, abs=0.05)
    assert plan(LLAMA3_70B, AUTOCAST, h100s()).best is None


@pytest.mark.parametrize(
    ("optimizer", "whole", "fits"), [("adamw", 180.0, False), ("adamw8bit", 112.5, True)]
)
def test_45_gb_of_weights_on_4_devices_of_40_gb_need_8_bit_adam(
    optimizer: str, whole: float, fits: bool
) -> None:
    workload = Workload(precision="fp32", optimizer=optimizer, weights_only=True)
    found = plan(of_parameters(45 * 10**9 // 4), workload, box(4, 40 * 10**9))
    assert row(found, "single").bytes.total / 1e9 == pytest.approx(whole, abs=0.1)
    assert (row(found, "fsdp2").fits, found.best is not None) == (fits, fits)


def test_an_8_bit_optimizer_is_offered_where_it_would_do() -> None:
    workload = Workload(precision="fp32", weights_only=True)
    found = row(plan(of_parameters(45 * 10**9 // 4), workload, box(4, 40 * 10**9)), "fsdp2")
    assert {"optimizer", "devices"} <= {remedy.field for remedy in found.remedies}


def test_links_decide_the_time_and_what_is_possible() -> None:
    fast, slow = (
        plan(LLAMA32_1B, AUTOCAST, replace(simulated(name), memory_free=(22 * GIB,) * 8))
        for name in ("dgx-h100", "rtx4090")
    )
    only = set(names(fast)) - set(names(slow))
    assert only == {
        *("tp2-fsdp2", "tp4-fsdp2", "tp8-fsdp2", "tp2-pp2-zero1", "tp2-pp4", "tp4-pp2"),
    }
    assert (row(fast, "fsdp2").traffic.seconds or 0) < (row(slow, "fsdp2").traffic.seconds or 0) / 5


def test_a_pipeline_stands_below_all_that_can_be_started_where_links_are_fast() -> None:
    fast = plan(LLAMA2_7B, AUTOCAST, h100s())
    fits = [each for each in fast.rows if each.fits]
    assert sorted(fits, key=lambda each: not each.strategy.startable) == fits and "pp" in fits[-1].name
    lacking = plan(LLAMA3_70B, AUTOCAST, rtx_3090s())
    assert not lacking.rows[-1].strategy.startable and not lacking.rows[-1].fits


def test_over_slow_links_a_pipeline_stands_before_what_gathers_weights() -> None:
    """The guide: without fast links a pipeline is faster than ZeRO or tensor parallelism."""
    slow = plan(LLAMA2_7B, replace(AUTOCAST, checkpointing=True), box(8, 32 * GIB, "SYS", 12.0, 10**13))
    order = [each.name for each in slow.rows if each.fits]
    assert order.index("pp8") < order.index("zero3") and order.index("pp8") < order.index("fsdp2")
    assert (row(slow, "pp8").traffic.seconds or 0) < (row(slow, "fsdp2").traffic.seconds or 0) / 50
    assert "slow links" in row(slow, "fsdp2").apart
    few = plan(LLAMA2_7B, replace(AUTOCAST, checkpointing=True), box(8, 22 * GIB, "SYS", 12.0, 10**13))
    assert few.best is not None and few.best.name == "pp8"
    # What a launcher can start is named, too.
    assert any("pp8 sends least" in notice and "zero3" in notice for notice in few.notices)


# Devices that share a batch


def test_all_strategies_but_one_device_make_the_same_global_batch() -> None:
    """The guide: global batch = micro-batch × chunks × dp. Devices that share a batch make more passes."""
    for workload in (Workload(batch=2, accumulation=3), Workload(sequence=16384)):
        found = plan(LLAMA3_8B, workload, h100s())
        assert found.global_batch == workload.batch * workload.accumulation * 8
        for each in found.rows:
            own = each.strategy.own(workload)
            total = own.batch * own.accumulation * each.strategy.replicas
            assert total == (
                found.global_batch if each.name != "single" else workload.batch * own.accumulation
            )
            if each.strategy.sharing > 1:
                assert f"global batch {total} = batch {own.batch} × {own.accumulation} " in each.reason
    assert to_document(found)["global_batch"] == 8


def test_a_pipeline_waits_less_with_more_chunks_and_with_interleaved_stages() -> None:
    def bubble(name: str, accumulation: int) -> float:
        return row(plan(LLAMA2_7B, Workload(accumulation=accumulation), h100s()), name).traffic.bubble

    # (p - 1) / (m + p - 1): eight stages and eight chunks.
    assert bubble("pp8", 1) == pytest.approx(7 / 15) and bubble("pp8", 4) == pytest.approx(7 / 39)
    assert bubble("pp8x2", 1) == pytest.approx(7 / 23)
    many = plan(LLAMA2_7B, Workload(accumulation=4), h100s())
    once, twice = (row(many, name) for name in ("pp8", "pp8x2"))
    assert twice.traffic.bytes == 2 * once.traffic.bytes and twice.bytes.total > once.bytes.total


def test_several_pipelines_divide_the_optimizer_and_add_their_gradients() -> None:
    found = plan(LLAMA2_7B, BF16, h100s())
    both, one = row(found, "pp4-zero1"), row(found, "pp8")
    assert both.strategy.replicas == 2 and "2 pipelines with ZeRO-1" in both.reason
    assert both.bytes.optimizer == pytest.approx(one.bytes.optimizer, rel=0.1)
    assert both.bytes.weights == pytest.approx(2 * one.bytes.weights, rel=0.1)
    sent = {each.what: each.bytes for each in both.traffic.exchanges}
    # The first stage has its eight layers and the embedding.
    first = 8 * LLAMA2_7B.largest_block + 32000 * 4096
    assert sent["gradients"] == pytest.approx(2 * first, rel=0.001)


def test_embeddings_that_the_first_and_the_last_stage_share_are_sent() -> None:
    tied, untied = (
        {each.what: each.bytes for each in row(plan(known, BF16, h100s()), "pp4-zero1").traffic.exchanges}
        for known in (LLAMA32_1B, LLAMA3_8B)
    )
    assert tied["embeddings"] == 2 * 128256 * 2048 and "embeddings" not in untied


def test_three_dimensions_divide_what_each_device_has() -> None:
    found = plan(LLAMA2_7B, AUTOCAST, h100s())
    three = row(found, "tp2-pp2-zero1")
    sizes = (three.strategy.tensor_parallel, three.strategy.pipeline_parallel, three.strategy.replicas)
    assert sizes == (2, 2, 2)
    assert three.bytes.weights == pytest.approx(LLAMA2_7B.parameters, rel=0.1)
    assert {each.what for each in three.traffic.exchanges} == {"layers", "stages", "gradients"}


def test_a_long_sequence_is_divided_by_one_of_the_two_ways() -> None:
    long = plan(LLAMA3_8B, Workload(sequence=32768), h100s())
    shared = {each.name: each for each in long.rows if each.strategy.context_parallel > 1}
    assert set(shared) == {"cp2-fsdp2", "cp4-fsdp2", "cp8-fsdp2", "sp2-zero3", "sp4-zero3", "sp8-zero3"}
    kept = [row(long, name).bytes.activations for name in ("fsdp2", "cp2-fsdp2", "cp4-fsdp2")]
    assert kept[1] == pytest.approx(kept[0] / 2, rel=0.1) and kept[2] == pytest.approx(kept[0] / 4, rel=0.1)
    short = plan(LLAMA3_8B, Workload(), h100s())
    assert not any(each.strategy.context_parallel > 1 for each in short.rows)


# Several machines


def test_a_batch_that_is_no_multiple_of_the_devices_is_said_not_to_be_split() -> None:
    def said(batch: int, devices: int, splits: bool = True) -> bool:
        made = plan(LLAMA3_8B, replace(AUTOCAST, batch=batch, splits=splits), h100s(devices))
        return any("split_batches" in notice for notice in made.notices)

    assert said(15, 8) and not said(16, 8) and not said(15, 1) and not said(15, 8, splits=False)


def machines(nodes: int, gigabits: float, link: str = "NV18") -> Box:
    return replace(box(8, 79 * GIB, link, 370.8, 1000 * GIB), nodes=nodes, network=gigabits / 8)


def test_a_model_of_a_size_alone_has_pipelines_with_tensor_parallelism() -> None:
    """The notice for slow links between machines recommends them."""
    found = plan(of_parameters(70 * 10**9), replace(AUTOCAST, checkpointing=True), machines(4, 400))
    assert {"tp2-pp8-zero1", "tp4-pp8", "tp8-pp4"} <= {row.name for row in found.rows}


def test_over_a_fast_network_weights_are_gathered_and_pipelines_are_last() -> None:
    """The guide: ZeRO needs close to no change of the program; 3D sends less and needs one."""
    found = plan(LLAMA3_8B, AUTOCAST, machines(2, 3200))
    order = [each.name for each in found.rows if each.fits]
    assert not found.box.slow and order.index("fsdp2") < order.index("hsdp") < order.index("tp2-pp2-zero1")
    assert any("fast" in notice and "need no change" in notice for notice in found.notices)


def test_over_a_slow_network_hsdp_and_three_dimensions_come_first() -> None:
    """The guide: with slow links and little memory, data, pipeline and tensor parallelism with ZeRO."""
    for network in (10, 100, 400):
        found = plan(LLAMA3_8B, AUTOCAST, machines(2, network))
        order = [each.name for each in found.rows if each.fits]
        assert found.box.slow and not row(found, "hsdp").slow
        for name in ("hsdp", "tp2-pp2-zero1", "tp8-pp2"):
            assert order.index(name) < order.index("fsdp2") and order.index(name) < order.index("zero3")
        assert any("slow" in notice and "HSDP" in notice for notice in found.notices)
    few = plan(LLAMA3_70B, replace(AUTOCAST, checkpointing=True), machines(4, 10))
    assert few.best is not None and "pp" in few.best.name


def test_hsdp_divides_within_a_machine_and_sends_gradients_between_them() -> None:
    found = plan(LLAMA3_8B, AUTOCAST, machines(2, 400))
    one = row(plan(LLAMA3_8B, AUTOCAST, h100s(8)), "fsdp2").bytes
    both = row(found, "hsdp")
    assert (both.bytes.weights, both.bytes.optimizer) == (one.weights, one.optimizer)
    sent = {each.what: each for each in both.traffic.exchanges}
    assert sent["copies"].bytes == 4 * LLAMA3_8B.parameters // 8
    # Eight rings share the network of a machine: 50 GB/s.
    assert sent["copies"].seconds == pytest.approx(sent["copies"].bytes / (50e9 / 8))
    assert (sent["weights"].seconds or 0) == pytest.approx(sent["weights"].bytes / 370.8e9)


def test_tensor_parallelism_and_data_parallel_stay_within_a_machine() -> None:
    found = names(plan(LLAMA3_70B, AUTOCAST, machines(4, 400)))
    assert "dp" not in found and "tp8-fsdp2" in found and "tp16-fsdp2" not in found


def test_deepspeeds_estimates_are_those_of_so_many_machines() -> None:
    found = plan(LLAMA2_7B, AUTOCAST, machines(2, 400))
    assert found.estimates == estimates(LLAMA2_7B.parameters, LLAMA2_7B.largest_layer, 8, 2)
    host = host_needed(LLAMA2_7B, AUTOCAST, Strategy("zero3-offload", 16), 2)
    assert host == next(each.cpu for each in found.estimates if (each.stage, each.offload) == (3, "all"))


# DataParallel


def test_data_parallel_has_five_exchanges_and_ddp_one() -> None:
    """The guide's own benchmark: gpt2, four sequences of 1024 tokens on each of two devices: 1.82 GB."""
    given = box(2, 24 * GIB, "NV2", 40.0)
    found = plan(GPT2, Workload(4, 1024, "autocast"), given)
    one, other = row(found, "dp"), row(found, "ddp")
    sent = [each.what for each in one.traffic.exchanges]
    assert sent == ["inputs", "weights", "outputs", "losses", "gradients"]
    assert [each.what for each in other.traffic.exchanges] == ["gradients"]
    assert one.traffic.bytes == pytest.approx(1.82e9, rel=0.01)
    assert one.traffic.seconds == pytest.approx(0.045, rel=0.02)
    assert "five exchanges" in one.reason and "one exchange" in other.reason


def test_data_parallel_needs_more_of_gpu_0_than_of_each_other() -> None:
    found = plan(GPT2, Workload(4, 1024, "autocast"), h100s(4))
    first, *others = row(found, "dp").device_bytes
    assert len(others) == 3 and len(set(others)) == 1
    # The optimizer's states, the gradients of the others, and the outputs of all.
    parts = row(found, "dp").bytes
    outputs = 4 * 4 * 1024 * 4 * GPT2.vocabulary
    assert first - others[0] == parts.optimizer + parts.gradients + outputs
    assert set(row(found, "ddp").device_bytes) == {row(found, "ddp").bytes.total}


def test_where_only_a_pipeline_fits_what_would_do_is_said_all_the_same() -> None:
    given = box(8, 72 * GIB, "NV18", 370.8, 64 * GIB)
    found = plan(LLAMA3_70B, replace(BF16, checkpointing=True), given)
    assert found.best is not None and found.best.name == "tp4-pp2"
    assert found.changes


def test_what_would_do_is_not_only_a_pipeline_of_many_stages() -> None:
    found = plan(LLAMA3_70B, AUTOCAST, rtx_3090s())
    would = found.changes
    assert would and not any("pipeline" in each for each in would)
    only = plan(LLAMA3_70B, Workload(lora=16, checkpointing=True, optimizer="adamw8bit"), rtx_3090s(2))
    would = only.changes
    assert would


def test_what_fragments_may_take_stands_below_what_has_room() -> None:
    found = plan(LLAMA3_8B, BF16, h100s())
    ddp, order = row(found, "ddp"), names(found)
    assert ddp.fits and ddp.tight and ddp.apart == "tight"
    assert (ddp.traffic.seconds or 0) < (row(found, "fsdp2").traffic.seconds or 0)
    assert order.index("fsdp2") < order.index("ddp")


@pytest.mark.parametrize("name", ["gb10", "apple"])
def test_nothing_is_offloaded_from_a_device_whose_memory_is_the_hosts(name: str) -> None:
    assert names(plan(LLAMA32_1B, AUTOCAST, simulated(name))) == ["single"]


def test_a_device_without_a_known_uuid_is_null_in_the_document() -> None:
    assert to_document(plan(GPT2, AUTOCAST, simulated("intel")))["devices"] == [None] * 4


@pytest.mark.parametrize("name", ["intel", "amd-cpx"])
def test_measured_bandwidths_of_devices_without_a_uuid_of_their_own_are_taken(name: str) -> None:
    source = named(name)
    source.open()
    snapshot = source.read(Want.ALL | Want.DETAILS)
    one, other = snapshot.devices[:2]
    found = box_of(snapshot, (one, other), measured={(one.key, other.key): 40.0, ("else", "where"): 1.0})
    assert found.measured and found.slowest([(0, 1)]) == 40
    assert not box_of(snapshot, (one, other), measured={("else", "where"): 1.0}).measured


def test_links_that_are_not_known_are_not_called_slow() -> None:
    unknown = plan(LLAMA32_1B, AUTOCAST, simulated("gaudi"))
    assert "slow" not in row(unknown, "fsdp2").reason and "slow" not in " ".join(unknown.notices)


def test_what_fits_tightly_stands_above_what_waits_for_the_host() -> None:
    needs = row(plan(LLAMA3_8B, AUTOCAST, h100s(4)), "fsdp2").bytes.total
    found = plan(
        LLAMA3_8B, AUTOCAST, replace(h100s(4), memory_free=(needs + GIB // 2,) * 4, host_memory=10**13)
    )
    fits = [each.name for each in found.rows if each.fits]
    assert row(found, "fsdp2").tight
    assert fits.index("fsdp2") < fits.index("zero3-offload")


def test_tensor_parallelism_stays_within_direct_links_and_divides_the_heads() -> None:
    def groups(known: Model, given: Box) -> set[str]:
        found = names(plan(known, AUTOCAST, given))
        return {name for name in found if name.startswith("tp") and "pp" not in name}

    assert groups(LLAMA3_8B, h100s()) == {"tp2-fsdp2", "tp4-fsdp2", "tp8-fsdp2"}
    assert groups(LLAMA3_8B, rtx_3090s()) == set()
    # Now 12 heads; and bridged pairs, in one order and in another.
    assert groups(GPT2, h100s()) == {"tp2-fsdp2", "tp4-fsdp2"}
    bridged = replace(
        rtx_3090s(),
        links=(
            ("X", "NV4", "PHB", "PHB"),
            ("NV4", "X", "PHB", "PHB"),
            ("PHB", "PHB", "X", "NV4"),
            ("PHB", "PHB", "NV4", "X"),
        ),
    )
    assert groups(LLAMA3_8B, bridged) == {"tp2-fsdp2"}
    order = (0, 2, 1, 3)
    crossed = replace(bridged, links=tuple(tuple(bridged.links[i][j] for j in order) for i in order))
    assert groups(LLAMA3_8B, crossed) == set()


def test_a_pipeline_has_a_row_of_its_own_and_no_more_stages_than_layers() -> None:
    found = names(plan(LLAMA2_7B, AUTOCAST, h100s()))
    assert {name for name in found if "pp" in name} == {
        *("pp2-zero1", "pp4-zero1", "pp4x2-zero1", "pp8", "pp8x2"),
        *("tp2-pp2-zero1", "tp2-pp4", "tp4-pp2"),
    }
    assert "pp8" not in names(plan(model("gpt2", n_layer=4), AUTOCAST, h100s()))


def test_the_least_free_memory_of_the_devices_decides() -> None:
    mixed = replace(rtx_3090s(2), memory_free=(23 * GIB, 6 * GIB))
    assert plan(LLAMA32_1B, AUTOCAST, mixed).best is None


def test_where_free_memory_is_not_known_nothing_is_said_to_fit() -> None:
    found = plan(GPT2, AUTOCAST, replace(rtx_3090s(2), memory_free=(23 * GIB, None)))
    assert found.best is None and {each.fits for each in found.rows} == {None}
    assert to_document(found)["memory_free_min"] is None


def test_devices_without_bfloat16_are_told_apart() -> None:
    said, other = (
        plan(GPT2, Workload(precision=each), simulated("dgx-1")).notices  # type: ignore[arg-type]
        for each in ("bf16", "fp16")
    )
    assert any("bfloat16" in notice for notice in said) and not any("bfloat16" in notice for notice in other)


def test_the_document_has_the_keys_that_scripts_depend_on() -> None:
    document = to_document(plan(LLAMA2_7B, AUTOCAST, h100s()))
    assert set(document) == {
        *("schema", "model", "devices", "memory_free_min", "strategies", "estimators", "notices"),
        *("workload", "global_batch", "nodes"),
    }
    assert set(document["model"]) == {"name", "architecture", "parameters", "largest_layer"}
    for each in document["strategies"]:
        assert set(each) == {
            *("name", "devices", "tp", "pp", "bytes", "fits", "margin"),
            *("traffic_bytes", "seconds", "reason", "serving"),
            *("cp", "dp", "device_bytes", "exchanges", "bubble"),
        }
        parts = {"weights", "gradients", "optimizer", "buffers", "activations", "fixed", "cache"}
        assert set(each["bytes"]) == {*parts, "total"}
        assert each["bytes"]["total"] == sum(each["bytes"][part] for part in parts)
    assert {each["name"] for each in document["strategies"]} == {
        *("single", "ddp", "zero1", "zero2", "zero3", "zero2-offload", "zero3-offload", "fsdp2"),
        *("tp2-fsdp2", "tp4-fsdp2", "tp8-fsdp2", "pp8", "dp", "pp2-zero1", "pp4-zero1", "pp4x2-zero1"),
        *("pp8x2", "tp2-pp2-zero1", "tp2-pp4", "tp4-pp2"),
    }
    by_deepspeed = {(each["stage"], each["offload"]): each for each in document["estimators"]["deepspeed"]}
    assert by_deepspeed[3, "none"]["gpu"] == 15_685_723_136
    assert by_deepspeed[2, "none"]["cpu"] == 323_443_949_568


# The largest layer


@pytest.mark.parametrize("name", ["zero3", "fsdp2"])
def test_a_layer_that_is_gathered_is_there_whole_on_however_many_devices(name: str) -> None:
    """A model that is nearly all embedding: DeepSpeed's estimate counts the layer four times, and FSDP
    gathers it."""
    known = llama_like("llama", 7168, 1, 56, 56, 7168, 8_000_000, True)
    found = plan(known, Workload(sequence=8), box(16, 100 * GIB, "NV18", 370.8))
    estimate = next(each for each in found.estimates if (each.stage, each.offload) == (3, "none"))
    assert row(found, "zero3").bytes.total == pytest.approx(estimate.gpu, rel=0.05)
    layer = 4 * known.largest_layer
    each = row(found, name)
    assert not each.fits and each.bytes.total > each.layer >= layer
    assert each.lacking and each.lacking in each.reason
    # Without such a layer no row has this reason, even where the model does not fit.
    assert not any(each.layer for each in plan(LLAMA3_70B, AUTOCAST, rtx_3090s()).rows)


def test_a_layer_that_is_gathered_says_why_also_in_the_document() -> None:
    known = llama_like("llama", 7168, 1, 56, 56, 7168, 8_000_000, True)
    document = to_document(plan(known, Workload(sequence=8), box(16, 100 * GIB, "NV18", 370.8)))
    (zero3,) = (each for each in document["strategies"] if each["name"] == "zero3")
    assert "the largest layer needs " in zero3["reason"] and not zero3["fits"]


# Groups


def test_only_strategies_of_the_groups_that_are_asked_for_are_planned() -> None:
    def of(grouping: Grouping) -> list[str]:
        return names(plan(LLAMA3_8B, AUTOCAST, h100s(), grouping))

    assert of(Grouping(tensor=4)) == ["tp4-fsdp2"]
    assert set(of(Grouping(pipeline=8))) == {"pp8", "pp8x2"}
    assert of(Grouping(tensor=4, pipeline=2)) == ["tp4-pp2"]
    assert of(Grouping(independent=True)) == ["single"]
    assert of(Grouping()) == names(plan(LLAMA3_8B, AUTOCAST, h100s()))
    with pytest.raises(PlanningError):
        of(Grouping(tensor=8, pipeline=2))


# Traffic


def test_ddp_and_zero_2_send_two_thirds_of_what_zero_3_sends() -> None:
    sent = {
        each: traffic(GPT2, Workload(precision="bf16"), Strategy(each, 4), rtx_3090s()).bytes  # type: ignore[arg-type]
        for each in ("ddp", "zero1", "zero2", "zero3")
    }
    gradients = 2 * GPT2.parameters
    assert sent["ddp"] == sent["zero1"] == sent["zero2"] == round(2 * 3 / 4 * gradients)
    assert sent["zero3"] == round(3 * 3 / 4 * gradients)


def test_fsdp_gathers_twice_and_reduces_in_32_bits() -> None:
    sent = traffic(GPT2, AUTOCAST, Strategy("fsdp2", 8), h100s()).bytes
    assert sent == round(7 / 8 * (2 + 2 + 4) * GPT2.parameters)


def test_seconds_are_bytes_over_the_slowest_step_of_the_ring() -> None:
    given = rtx_3090s(2)
    found = traffic(GPT2, AUTOCAST, Strategy("ddp", 2), given)
    assert found.seconds == pytest.approx(found.bytes / 24e9)
    unknown = replace(given, bandwidths=((None, None), (None, None)))
    assert traffic(GPT2, AUTOCAST, Strategy("ddp", 2), unknown).seconds is None


def test_measured_bandwidths_come_before_modelled_ones() -> None:
    source = named("dgx-h100")
    source.open()
    snapshot = source.read(Want.ALL | Want.DETAILS)
    one, other = snapshot.devices[:2]
    found = box_of(
        snapshot, (one, other), measured={(one.uuid, other.uuid): 300.0, (other.uuid, one.uuid): 290.0}
    )
    assert found.measured and found.bandwidths[0][1] == 290.0
    assert box_of(snapshot, (one, other)).bandwidths[0][1] == pytest.approx(18 * 20.6, abs=0.1)


# Properties that always hold

MODELS = st.one_of(
    st.sampled_from([model(kind) for kind in sorted(FAMILIES)]),
    st.integers(1, 10**13).map(of_parameters),
)
WORKLOADS = st.builds(
    Workload,
    batch=st.integers(1, 64),
    sequence=st.integers(1, 32768),
    precision=st.sampled_from(PRECISIONS),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    checkpointing=st.booleans(),
    lora=st.sampled_from([0, 8, 64]),
    accumulation=st.integers(1, 16),
    weights_only=st.booleans(),
)
BOXES = st.builds(
    box,
    st.integers(1, 16),
    st.one_of(st.none(), st.integers(0, 200 * GIB)),
    st.sampled_from(["NV18", "NV4", "PIX", "SYS"]),
    st.one_of(st.none(), st.floats(1, 500)),
    st.one_of(st.none(), st.integers(0, 2000 * GIB)),
)


@settings(max_examples=25, deadline=None)
@given(MODELS, WORKLOADS, BOXES)
def test_a_plan_is_consistent(known: Model, workload: Workload, given_box: Box) -> None:
    found = plan(known, workload, given_box)
    for each in found.rows:
        parts = each.bytes
        numbers = (
            parts.weights,
            parts.gradients,
            parts.optimizer,
            parts.buffers,
            parts.activations,
            parts.fixed,
        )
        assert all(number >= 0 for number in numbers) and parts.total == sum(numbers)
        assert each.margin is None or each.margin == (given_box.memory_free_min or 0) - parts.total
        assert not each.fits or (each.margin is not None and each.margin >= 0)
        assert not (each.fits and each.remedies)
        assert each.traffic.bytes >= 0 and "\n" not in each.reason
        if workload.weights_only:
            assert parts.total == parts.weights + parts.gradients + parts.optimizer
    able = [each for each in found.rows if each.fits and not each.apart]
    times = [each.traffic.seconds or 0 for each in able]
    assert all(time <= 1.02 * later for place, time in enumerate(times) for later in times[place:])
    assert [each.apart for each in found.rows[: len(able)]] == [""] * len(able)
    fits = [bool(each.fits) for each in found.rows]
    assert fits == sorted(fits, reverse=True)
    assert len(set(names(found))) == len(found.rows)
    document = to_document(found)
    assert json.loads(json.dumps(document)) == document


@settings(max_examples=25, deadline=None)
@given(
    MODELS,
    WORKLOADS,
    st.sampled_from(["zero1", "zero2", "zero3", "zero3-offload", "fsdp2"]),
    st.integers(2, 512),
    st.integers(1, 8),
)
def test_more_devices_never_need_more_of_each(
    known: Model, workload: Workload, kind: str, count: int, times: int
) -> None:
    few, many = (
        needed(known, workload, Strategy(kind, number), GIB)  # type: ignore[arg-type]
        for number in (count, count * times)
    )
    assert many.total <= few.total


@settings(max_examples=60, deadline=None)
@given(
    MODELS,
    WORKLOADS,
    st.sampled_from(
        [
            *(Strategy(kind, 4) for kind in ("ddp", "zero1", "zero2", "zero3", "fsdp2")),
            *(Strategy("single", 1), Strategy("zero2-offload", 4), Strategy("zero3-offload", 4)),
            *(Strategy("fsdp2", 4, tensor_parallel=2), Strategy("pp", 4, pipeline_parallel=4)),
        ]
    ),
)
def test_bf16_beside_weights_of_32_bits_never_needs_more(
    known: Model, workload: Workload, strategy: Strategy
) -> None:
    single, mixed = (
        needed(known, replace(workload, precision=each), strategy).total  # type: ignore[arg-type]
        for each in ("fp32", "autocast")
    )
    # The states alone have the same number of bytes in other parts, each of which is rounded up.
    assert mixed <= single + (3 if workload.weights_only else 0)


@settings(max_examples=25, deadline=None)
@given(MODELS, WORKLOADS, st.integers(1, 64))
def test_a_larger_batch_never_needs_less(known: Model, workload: Workload, batch: int) -> None:
    small, large = sorted((workload.batch, batch))
    totals = [
        needed(known, replace(workload, batch=each), Strategy("single", 1)).total for each in (small, large)
    ]
    assert totals[0] <= totals[1]


@settings(max_examples=25, deadline=None)
@given(MODELS, WORKLOADS, st.integers(1, 8), st.integers(GIB, 80 * GIB))
def test_each_remedy_alone_makes_it_fit_or_else_all_together(
    known: Model, workload: Workload, count: int, free: int
) -> None:
    given_box = box(count, free)
    workload = workload.for_model(known)
    for each in plan(known, workload, given_box).rows:
        assert not (each.remedies and each.together)
        for remedies in (*((remedy,) for remedy in each.remedies), each.together):
            changed, strategy = workload, each.strategy
            for remedy in remedies:
                changed, strategy = with_remedy(remedy, changed, strategy)
            assert not remedies or needed(known, changed, strategy, each.bytes.fixed).total <= free
        if each.together and each.together[-1].field != "devices":
            for remedy in each.together:
                changed = workload
                for other in each.together:
                    if other is not remedy:
                        changed, _ = with_remedy(other, changed, each.strategy)
                assert needed(known, changed, each.strategy, each.bytes.fixed).total > free


def with_remedy(remedy: Remedy, workload: Workload, strategy: Strategy) -> tuple[Workload, Strategy]:
    if remedy.field == "devices":
        stages = remedy.value if strategy.kind == "pp" else 1
        return workload, replace(strategy, devices=remedy.value, pipeline_parallel=stages)
    return remedy.made_in(workload), strategy


def test_a_plan_takes_a_few_milliseconds() -> None:
    for known in (LLAMA3_70B, model("deepseek_v3"), model("t5")):
        assert_costs(0.1, partial(cpu_seconds, partial(plan, known, AUTOCAST, h100s(16))))
