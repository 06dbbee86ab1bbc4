"""The words of a command about its training: model, batch, sequence, precision, by option and by file."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching.launch_options import LaunchOptions
from gputui.launching.memory_warning import memory_warning
from gputui.launching.training_words import NO_TRAINING, Training, training_of
from table_tests import each_row
from unit.builders import box, gpu
from unit.host_environments import Told


def read(line: str, directory: str | None = None, **files: str) -> Training:
    told = Told(
        {re.sub("_(yaml|json|py)$", r".\1", name.replace("__", "/")): each for name, each in files.items()}
    )
    options = LaunchOptions(tuple(shlex.split(line)), directory=directory)
    return training_of(options, {"HOME": "/home/u"}, told)


@each_row(
    ("line", "said"),
    [
        ("python train.py", {}),
        (
            "python run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --block_size 1024"
            " --bf16 --gradient_checkpointing --optim adamw_bnb_8bit --gradient_accumulation_steps 8",
            {
                "model": "gpt2",
                "batch": 4,
                "sequence": 1024,
                "precision": "autocast",
                "checkpointing": True,
                "optimizer": "adamw8bit",
                "accumulation": 8,
            },
        ),
        ("python t.py --model=a/b --batch-size=16", {"model": "a/b", "batch": 16}),
        (
            "torchrun --nproc-per-node 2 t.py --model a --bf16 False --fp16",
            {"model": "a", "precision": "fp16"},
        ),
        ("uv run python t.py --model a --dtype bfloat16 --bf16", {"model": "a", "precision": "bf16"}),
        ("python t.py --no_gradient_checkpointing --optim adafactor", {"checkpointing": False}),
        ("accelerate launch --mixed_precision bf16 t.py --model a", {"model": "a", "precision": "autocast"}),
        (
            "accelerate launch --mixed_precision fp8 t.py --model a",
            {"model": "a", "precision": "autocast"},
        ),
        ("trl sft --model_name_or_path a --use_peft", {"model": "a", "lora": 16}),
        ("python t.py --model a --use_peft --lora_r 64", {"model": "a", "lora": 64}),
        ("swift sft --model a --train_type full --lora_rank 8", {"model": "a", "lora": 0}),
        ("python t.py --batch_size 0 --max_length x", {}),
        ("python t.py --batch_size 99999999999999", {}),
        ("python -m verl.trainer.main_ppo actor_rollout_ref.model.path=a/b", {"model": "a/b"}),
        ("vllm serve a/b --max-model-len 100", {"model": "a/b"}),
        ("python -m sglang.launch_server --model-path a/b", {"model": "a/b"}),
        ("python -m sglang.launch_server", {}),
        ("python t.py a --model a", {"model": "a"}),
    ],
)
def test_options_say_it(line: str, said: dict[str, Any]) -> None:
    found = read(line)
    fields = ("model", "batch", "sequence", "precision", "checkpointing", "lora", "optimizer", "accumulation")
    assert {each: getattr(found, each) for each in fields if getattr(found, each) is not None} == said


def test_a_configuration_file_says_what_the_line_does_not() -> None:
    text = "model_name_or_path: a\nbf16: true\ncutoff_len: 512\nper_device_train_batch_size: 2\n"
    for line in ("llamafactory-cli train x.yaml", "trl sft --config x.yaml", "python train.py x.yaml"):
        found = read(f"{line} --per_device_train_batch_size 4", x_yaml=text)
        assert (found.model, found.precision, found.sequence, found.batch) == ("a", "autocast", 512, 4), line


def test_axolotl_loads_weights_in_the_type_that_it_computes_in() -> None:
    text = "base_model: a\nbf16: auto\nadapter: lora\nlora_r: 32\nmicro_batch_size: 2\nsequence_len: 4096\n"
    found = read("axolotl train x.yaml", x_yaml=text)
    assert (found.model, found.precision, found.lora, found.batch, found.sequence) == (
        "a",
        "bf16",
        32,
        2,
        4096,
    )


@each_row(
    ("line", "script", "trainer"),
    [
        ("python run_clm.py --model_name_or_path a", "", True),
        ("python train.py --model a --per_device_train_batch_size 2", "", True),
        ("trl sft --model_name_or_path a", "", True),
        ("llamafactory-cli train --model_name_or_path a", "", True),
        ("torchrun t.py", "from transformers import Trainer\n", True),
        ("torchrun t.py", "from trl import SFTTrainer\n", True),
        ("torchrun t.py", "import lightning as L\nimport transformers\nL.Trainer()\n", False),
        ("torchrun t.py --model a", "", False),
        ("accelerate launch --gradient_accumulation_steps 4 t.py --model a", "import torch\n", False),
        ("torchrun t.py --model a", "import torch\n", False),
        ("vllm serve a --output-dir b", "", False),
    ],
)
def test_whether_it_is_transformers_trainer(line: str, script: str, trainer: bool) -> None:
    assert read(line, "/job", **{"/job/t.py": script}).trainer is trainer


@each_row(
    ("script", "said"),
    [
        (
            "args = TrainingArguments('out', per_device_train_batch_size=4, bf16=True,"
            " gradient_accumulation_steps=8)",
            {"batch": 4, "precision": "autocast", "accumulation": 8},
        ),
        (
            "args = transformers.Seq2SeqTrainingArguments(gradient_checkpointing=True)",
            {"checkpointing": True},
        ),
        ("m = A.from_pretrained('a', torch_dtype=torch.bfloat16)", {"precision": "bf16"}),
        ("m = A.from_pretrained('a', dtype='bfloat16')", {"precision": "bf16"}),
        ("m = A.from_pretrained('a', dtype=torch.float32)", {"precision": "fp32"}),
        ("args = TrainingArguments('out', per_device_train_batch_size=size, bf16=here())", {}),
        ("args = TrainingArguments(", {}),
        ("other(per_device_train_batch_size=4)", {}),
    ],
)
def test_a_script_says_what_its_training_arguments_say(script: str, said: dict[str, Any]) -> None:
    found = read("python t.py", "/job", **{"/job/t.py": f"from transformers import Trainer\n{script}\n"})
    named = {name: getattr(found, name) for name in ("batch", "precision", "accumulation", "checkpointing")}
    assert {name: value for name, value in named.items() if value is not None} == said


def test_an_option_comes_before_the_script() -> None:
    script = "from transformers import Trainer\na = TrainingArguments(per_device_train_batch_size=4)\n"
    words = "python t.py --per_device_train_batch_size 2 --torch_dtype bfloat16"
    found = read(words, "/job", **{"/job/t.py": script})
    assert (found.batch, found.precision) == (2, "bf16")


def test_files_are_found_from_the_directory_of_the_launch() -> None:
    assert read("trl sft --config x.yaml", directory="/there", __there__x_yaml="model: a").model == "a"
    assert read("trl sft --config x.yaml", directory="/there", x_yaml="model: a").model is None


def test_accelerate_s_own_file_says_precision_and_checkpointing() -> None:
    text = (
        "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_activation_checkpointing: true\n"
    )
    found = read("accelerate launch --config_file c.yaml t.py --model a", c_yaml=text)
    assert (found.precision, found.checkpointing, found.offloads) == ("autocast", True, False)


@each_row("text", ["", "[", "- a", "model: [1]", "model: {a: b}", "model: null", "1: 2"])
def test_a_file_that_says_nothing_is_none(text: str) -> None:
    assert read("trl sft --config x.yaml", x_yaml=text).model is None


def test_a_shell_script_says_what_its_commands_say() -> None:
    text = """MODEL=a/b
    echo start --model none
    python prepare.py --model other
    if [ -n "$X" ]; then python train.py --model perhaps; fi
    torchrun train.py --model_name_or_path $MODEL --bf16 "$@"
    """
    told = Told({"t.sh": text, "u.sh": "bash t.sh", "loop.sh": "bash loop.sh"})
    for line in ("bash t.sh --block_size 512", "env A=1 bash t.sh --block_size 512"):
        found = training_of(LaunchOptions(tuple(line.split())), {"HOME": "/"}, told)
        assert (found.model, found.precision, found.sequence, found.trains) == ("a/b", "autocast", 512, True)
    assert training_of(LaunchOptions(("bash", "u.sh")), {"HOME": "/"}, told).model == "a/b"
    assert training_of(LaunchOptions(("bash", "loop.sh")), {"HOME": "/"}, told) == NO_TRAINING
    assert training_of(LaunchOptions(("bash", "none.sh")), {"HOME": "/"}, told) == NO_TRAINING


def test_a_script_that_changes_its_directory_reads_the_files_that_are_there() -> None:
    told = Told(
        {"t.sh": "cd sub && trl sft --config x.yaml", "u.sh": "cd $X; trl sft --config x.yaml"}
        | {"x.yaml": "model_name_or_path: outside", "sub/x.yaml": "model_name_or_path: inside"}
    )
    assert training_of(LaunchOptions(("bash", "t.sh")), {"HOME": "/"}, told).model == "inside"
    assert training_of(LaunchOptions(("bash", "u.sh")), {"HOME": "/"}, told).model is None


def test_a_container_s_paths_are_not_ours() -> None:
    assert read("docker run --gpus all image python t.py --model a") == NO_TRAINING
    assert read("") == NO_TRAINING


@each_row(
    ("line", "serves", "trains"),
    [
        ("vllm serve a", True, False),
        ("llamafactory-cli api --model_name_or_path a", True, False),
        ("llamafactory-cli train --model_name_or_path a", False, True),
        ("python eval.py --model a", False, False),
        ("python train.py --model a", False, True),
        ("python x.py --model a --lr 3e-4", False, True),
    ],
)
def test_who_trains_and_who_serves(line: str, serves: bool, trains: bool) -> None:
    found = read(line)
    assert (found.serves, found.trains) == (serves, trains)


def test_an_optimizer_that_the_planner_does_not_know_is_a_doubt() -> None:
    found = read("python t.py --model a --optim adafactor\x1b")
    assert (found.optimizer, found.other_optimizer) == (None, "adafactor\x1b")
    assert len(found.doubts) == 1 and "\x1b" not in found.doubts[0]
    assert read("python t.py --model a --optim adamw_torch").doubts == ()
    assert read("python t.py --model a").doubts == ()


def test_a_damaged_file_of_the_command_is_named() -> None:
    found = read("torchrun t.py c.yaml --model a --deepspeed ds.json", c_yaml="a: [", ds_json="[1,2")
    said = {f"{name} is not read: it is neither YAML nor JSON" for name in ("c.yaml", "ds.json")}
    assert {*found.doubts} == said and found.model == "a"


@pytest.mark.parametrize("text", ["[]", "5"])
def test_settings_of_a_launcher_that_are_no_object_are_named(text: str) -> None:
    said = "is not read: it is not an object of settings"
    assert read("deepspeed t.py --model a --deepspeed ds.json", ds_json=text).doubts == (f"ds.json {said}",)
    assert read("torchrun t.py --model a --deepspeed ds.json", ds_json="{}").doubts == ()
    # A list beside the script is its data.
    assert read("torchrun t.py data.json --model a", data_json=text).doubts == ()


def test_what_serves_a_model_or_loads_few_bits_is_a_doubt() -> None:
    assert len(read("trtllm-serve a --quantization awq").doubts) == 2
    assert read("vllm serve a --quantization awq").doubts == ()


def test_deepspeed_s_own_file_says_batch_passes_and_precision() -> None:
    text = json.dumps(
        {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 2,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 2},
        }
    )
    for option in ("--deepspeed", "--deepspeed_config"):
        found = read(f"deepspeed t.py --model a {option} ds.json", ds_json=text)
        assert (found.batch, found.accumulation, found.precision) == (4, 2, "autocast")
    line = "deepspeed t.py --model a --per_device_train_batch_size 3 --deepspeed ds.json"
    assert read(line, ds_json=text).batch == 3
    auto = json.dumps({"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}})
    found = read("deepspeed t.py --model a --deepspeed ds.json", ds_json=auto)
    assert (found.batch, found.precision) == (None, None)


def test_the_trainer_s_files_say_checkpointing_and_passes() -> None:
    fsdp = json.dumps({"fsdp_activation_checkpointing": True, "version": 2})
    found = read("torchrun t.py --model a --fsdp full_shard --fsdp_config f.json", f_json=fsdp)
    assert found.checkpointing
    own = json.dumps({"split_batches": True, "gradient_accumulation_kwargs": {"num_steps": 4}})
    found = read("torchrun t.py --model a --accelerator_config a.json", a_json=own)
    assert found.accumulation == 4 and found.splits


@each_row(
    ("line", "name", "value"),
    [
        ("torchrun t.py --model a --ddp_bucket_cap_mb wide", "ddp-bucket-cap-mb", "wide"),
        ("torchrun t.py --model a --ddp_bucket_cap_mb 0", "ddp-bucket-cap-mb", "0"),
        ("python t.py --model a --per_device_train_batch_size many", "per-device-train-batch-size", "many"),
        ("python t.py c.yaml --model a", "ddp-bucket-cap-mb", "-3"),
        ("python t.py --model a --deepspeed d.json", "train-micro-batch-size-per-gpu", "few"),
        ("torchrun t.py --model a --fsdp_config gone.json", "gone.json", "no file"),
        ("torchrun t.py --model a --accelerator_config '{\"a\":'", '{"a":', "not read"),
        ("vllm serve a --gpu-memory-utilization 1.5", "gpu-memory-utilization", "1.5"),
        ("vllm serve a --gpu-memory-utilization 0", "gpu-memory-utilization", "0"),
        ("vllm serve a --gpu-memory-utilization 0.0", "gpu-memory-utilization", "0.0"),
        ("vllm serve a --gpu-memory-utilization nan", "gpu-memory-utilization", "nan"),
        ("vllm serve a --kv-cache-dtype fp9", "kv-cache-dtype", "fp9"),
        ("vllm serve a --max-model-len 0", "max-model-len", "0"),
        ("vllm serve a --max-num-seqs 0", "max-num-seqs", "0"),
        ("python -m sglang.launch_server --model-path a --mem-fraction-static 88", "mem-fraction", "88"),
        ("vllm serve a --gpu-memory-utilization -1", "gpu-memory-utilization", "-1"),
        ("vllm serve a -tp 0", "tp", "0"),
        ("vllm serve a -tp -2", "tp", "-2"),
        ("vllm serve a --tensor-parallel-size x", "tensor-parallel-size", "x"),
        ("vllm serve a --max-loras -4", "max-loras", "-4"),
        ("vllm serve a --dtype int3", "dtype", "int3"),
        ("vllm serve a --config gone.yaml", "gone.yaml", "no file"),
        ("llama-server -m a -c -5", "c", "-5"),
        ("python t.py --model a --per_device_train_batch_size -1", "per-device-train-batch-size", "-1"),
        ("accelerate launch --mixed_precision fp8 t.py --model a", "mixed precision", "fp8"),
        ("accelerate launch --config_file gone.yaml t.py --model a", "gone.yaml", "no such file"),
        ("vllm serve a --cpu-offload-gb 4", "cpu-offload-gb", "not count"),
        ("python -m sglang.launch_server --max-total-tokens 9", "max-total-tokens", "not count"),
        ("vllm serve a --data-parallel-size 2", "data-parallel-size", "not count"),
    ],
)
def test_a_value_that_is_not_planned_is_one_sentence(line: str, name: str, value: str) -> None:
    files = {"c_yaml": "ddp_bucket_cap_mb: -3", "d_json": '{"train_micro_batch_size_per_gpu": "few"}'}
    (doubt,) = read(line, **files).doubts
    assert name in doubt and value in doubt and "\n" not in doubt


@each_row(
    "line",
    [
        "vllm serve a --max-model-len auto --kv-cache-dtype auto --data-parallel-size 1",
        "vllm serve a --max-model-len -1 --gpu-memory-utilization 1.0 --kv-cache-dtype nvfp4",
        "text-generation-launcher --model-id a --kv-cache-dtype fp8_e4m3fn",
        "llama-server -m a -ngl all -ctk q4_1",
        "llama-server -m a -c 0 -ngl -1",
        "torchrun t.py --model a --ddp_bucket_cap_mb 25 --ddp_find_unused_parameters false --lora_r 0",
    ],
)
def test_a_value_that_leaves_it_to_the_program_is_no_doubt(line: str) -> None:
    assert read(line).doubts == ()


@each_row(
    "text",
    [
        "from accelerate import *\nk = DistributedDataParallelKwargs(gradient_as_bucket_view=True)\n",
        "model = nn.parallel.DistributedDataParallel(m, [0], gradient_as_bucket_view=True)\n",
        "model = DDP(m, device_ids=[0], static_graph=True, gradient_as_bucket_view = True)\n",
    ],
)
def test_gradients_can_be_views_of_ddps_buckets(text: str) -> None:
    assert read("torchrun t.py --model a", t_py=text).bucket_view is True
    other = text.replace("True", "False")
    assert read("torchrun t.py --model a", t_py=other).bucket_view is False
    assert read("torchrun t.py c.yaml --model a", c_yaml="gradient_as_bucket_view: true").bucket_view is True
    assert read("torchrun t.py --model a").bucket_view is None


def test_the_trainer_s_files_may_be_json_on_the_line_and_have_any_keys() -> None:
    found = read("""torchrun t.py --model a --accelerator_config '{"split_batches": true}'""")
    assert found.splits
    assert read("torchrun t.py --model a --fsdp_config f.json", f_json="1: true").model == "a"


def test_weights_of_few_bits_and_deepspeed_are_seen() -> None:
    assert read("python t.py --model a --load_in_4bit").quantized
    assert not read("python t.py --model a --load_in_4bit False").quantized
    assert read("vllm serve a --quantization awq").quantized
    assert read("llamafactory-cli train x.yaml", x_yaml="quantization_bit: 4").quantized
    assert read("python t.py --model a --deepspeed ds.json").offloads
    assert read("deepspeed t.py --model a").offloads
    assert not read("python t.py --model a").offloads


_WORDS = st.sampled_from(
    [
        *("python", "torchrun", "accelerate", "launch", "vllm", "serve", "bash", "-c", "t.sh", "t.py", "--"),
        *("--model", "--model=", "--bf16", "--bf16=x", "--config", "x.yaml", "--lora_r", "16", "--optim"),
        *("--batch_size", "8", "-1", "\ud800", "a b", "--no_bf16", "model=", "--deepspeed", "docker", "run"),
        *("-", "=", "env"),
    ]
)


@given(st.lists(_WORDS | st.text(max_size=6), max_size=8), st.text(max_size=30))
@settings(max_examples=40, deadline=None)
def test_no_words_and_no_file_are_too_odd(words: list[str], text: str) -> None:
    told = Told({"x.yaml": text, "t.sh": text})
    options = LaunchOptions(tuple(words))
    training_of(options, {"HOME": "/"}, told)
    snapshot = box(gpu(0))
    assert memory_warning(options, snapshot, snapshot.devices, {"HOME": "/nowhere"}) is None
