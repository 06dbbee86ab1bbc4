"""The changes to a command that a recipe is to start: options for compose, and files."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
import yaml

from gputui.launching.compose import compose
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.planned import FilesDifferError, Prepared, prepared, write
from gputui.launching.training_words import training_of
from gputui.planning.files import Recipe, RecipeError
from table_tests import each_row
from unit.builders import gpu
from unit.calling import caller
from unit.host_environments import Told
from unit.planning_models import recipe

PLAN = "plan/accelerate.yaml"
FSDP = recipe("fsdp2", 2, wrap="LlamaDecoderLayer")


def made(planned: Recipe, command: str, folder: str = "plan", **options: object) -> Prepared:
    words = LaunchOptions(tuple(shlex.split(command)), **options)  # type: ignore[arg-type]
    return prepared(planned, words, folder, Told())


def launched(plan: Prepared) -> Launch:
    """The launch on the recipe's number of devices, in the place where the files are written."""
    devices = [gpu(index) for index in range(plan.recipe.devices)]
    told = Told({str(path): text for path, text in plan.texts.items()})
    return compose(devices, plan.options, {"HOME": "/home/u"}, told)


def command(plan: Prepared) -> str:
    return shlex.join(plan.options.command)


@each_row(
    ("typed", "expected"),
    [
        ("train.py --lr 1", f"accelerate launch --config_file {PLAN} train.py --lr 1"),
        ("python train.py", f"accelerate launch --config_file {PLAN} train.py"),
        ("python -m pkg.train", f"accelerate launch --config_file {PLAN} --module pkg.train"),
        ("uv run train.py", f"uv run accelerate launch --config_file {PLAN} train.py"),
        ("torchrun --nproc-per-node=8 train.py", f"accelerate launch --config_file {PLAN} train.py"),
        (
            "/v/bin/python train.py",
            f"/v/bin/python -m accelerate.commands.launch --config_file {PLAN} train.py",
        ),
        (
            "accelerate launch --config_file mine.yaml --use_deepspeed --zero_stage 2 --debug train.py",
            f"accelerate launch --config_file {PLAN} --debug train.py",
        ),
        (
            "accelerate launch --num_processes=8 --fsdp_offload_params 1 --dynamo_backend inductor train.py",
            f"accelerate launch --config_file {PLAN} --dynamo_backend inductor train.py",
        ),
    ],
)
def test_the_command_names_the_file_and_what_the_file_decides_gives_way(typed: str, expected: str) -> None:
    plan = made(FSDP, typed)
    assert command(plan) == expected
    assert launched(plan).launcher == "accelerate"


@each_row("strategy", ["fsdp2", "zero2", "zero3-offload", "tp2-fsdp2"])
@each_row("count", [2, 4, 8])
def test_compose_starts_as_many_processes_as_the_file_says_and_has_no_warning(
    strategy: str, count: int
) -> None:
    launch = launched(made(recipe(strategy, count), "train.py"))
    assert f"--num_processes={count}" in launch.argv and "--gpu_ids=all" in launch.argv
    assert launch.warnings == () and launch.refusal is None
    assert launch.settings is not None and launch.settings["num_processes"] == count


def test_ddp_is_torchruns_and_one_device_pythons() -> None:
    assert launched(made(recipe("ddp", 2), "python train.py")).argv == (
        *("torchrun", "--standalone", "--nproc-per-node=2", "train.py"),
    )
    assert launched(made(recipe("single"), "torchrun --nproc-per-node=4 train.py")).argv == (
        *("python", "train.py"),
    )


def test_a_number_of_processes_of_torchrun_is_the_recipes() -> None:
    launch = launched(made(recipe("ddp", 2), "torchrun --nproc-per-node=4 --max-restarts=1 train.py"))
    assert "--nproc-per-node=2" in launch.argv and "--max-restarts=1" in launch.argv
    assert launch.warnings == ()


def test_processes_that_were_asked_for_give_way() -> None:
    assert launched(made(recipe("ddp", 2), "train.py", processes=4)).warnings == ()


def test_a_users_own_configuration_of_accelerate_does_not_count_beside_ours() -> None:
    plan = made(recipe("ddp", 2), "accelerate launch --use_fsdp train.py")
    launch = launched(plan)
    assert (launch.launcher, launch.refusal) == ("accelerate", None)
    assert launch.settings is not None and launch.settings["distributed_type"] == "MULTI_GPU"


@each_row(
    ("given", "left"),
    [
        ("--gradient_checkpointing --lr 1", "--lr 1"),
        ("--gradient_checkpointing True --lr 1", "--lr 1"),
        ("--lr 1 --gradient-checkpointing=true", "--lr 1"),
        ("--gradient_checkpointing yes-please", "yes-please"),
        ("--gradient_checkpointing_kwargs {}", "--gradient_checkpointing_kwargs {}"),
    ],
)
def test_checkpointing_that_is_in_the_file_is_not_on_the_line(given: str, left: str) -> None:
    """With both, the Trainer refuses to start."""
    plan = made(recipe("fsdp2", 2, checkpointing=True), f"train.py {given}")
    assert command(plan) == shlex.join(
        shlex.split(f"accelerate launch --config_file {PLAN} train.py") + left.split()
    )
    assert any(note.startswith("left out") for note in plan.notes) is (left != given)
    (text,) = plan.texts.values()
    assert yaml.safe_load(text)["fsdp_config"]["fsdp_activation_checkpointing"] is True
    # The reading of the new command equals that of the old one.
    told = Told({str(path): text for path, text in plan.texts.items()})
    assert training_of(plan.options, {}, told).checkpointing is True


@each_row("planned", [*(recipe(name, 2, checkpointing=True) for name in ("zero2", "ddp", "tp2-fsdp2")), FSDP])
def test_checkpointing_that_no_file_has_stays_on_the_line(planned: Recipe) -> None:
    assert "--gradient_checkpointing" in command(made(planned, "train.py --gradient_checkpointing"))


def test_deepspeeds_launcher_stays_and_the_script_gets_our_file() -> None:
    plan = made(recipe("zero2", 2), "deepspeed train.py --deepspeed old.json")
    assert command(plan) == "deepspeed train.py --deepspeed plan/deepspeed.json"
    assert not any("must be told" in note for note in plan.notes)
    asked = made(recipe("zero2", 2), "deepspeed train.py --deepspeed --deepspeed_config=old.json")
    assert command(asked) == "deepspeed train.py --deepspeed --deepspeed_config=plan/deepspeed.json"
    assert any("--deepspeed plan" in note for note in made(recipe("zero2", 2), "deepspeed train.py").notes)


def test_a_file_that_the_script_is_told_of_is_ours_with_accelerate_too() -> None:
    plan = made(recipe("zero3", 2), "python train.py --deepspeed old.json")
    assert command(plan) == f"accelerate launch --config_file {PLAN} train.py --deepspeed plan/deepspeed.json"


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_command_that_asks_for_deepspeed_is_no_other_strategys(strategy: str) -> None:
    with pytest.raises(RecipeError):
        made(recipe(strategy, 2), "python train.py --deepspeed ds.json")


@each_row(("strategy", "launcher"), [("fsdp2", "torchrun"), ("ddp", "python"), ("zero2", "mpirun")])
def test_a_launcher_that_was_asked_for_is_not_replaced(strategy: str, launcher: str) -> None:
    with pytest.raises(RecipeError):
        made(recipe(strategy, 2), "train.py", launcher=launcher)


def test_with_the_launcher_that_was_asked_for_ddp_is_accelerates_too() -> None:
    plan = made(recipe("ddp", 2), "train.py", launcher="accelerate")
    assert command(plan) == f"accelerate launch --config_file {PLAN} train.py"


def test_a_command_that_was_planned_is_planned_again() -> None:
    first = made(recipe("ddp", 2), "train.py")
    second = prepared(FSDP, first.options, "plan", Told())
    assert command(second) == f"accelerate launch --config_file {PLAN} train.py"
    assert command(prepared(FSDP, second.options, "plan", Told())) == command(second)
    third = prepared(recipe("ddp", 2), second.options, "plan", Told())
    assert launched(third).settings is not None


def test_what_a_script_of_deepspeeds_loses_is_said() -> None:
    assert any("--local_rank" in note for note in made(FSDP, "deepspeed --num_gpus 2 train.py").notes)


def test_a_container_has_not_these_files() -> None:
    with pytest.raises(RecipeError):
        made(FSDP, "docker run --gpus all image python train.py")


def test_a_pipeline_has_no_launch() -> None:
    with pytest.raises(RecipeError):
        made(recipe("pp2", 2), "train.py")


def test_without_a_command_there_are_files_only() -> None:
    plan = made(FSDP, "")
    assert plan.options.command == () and set(plan.texts) == {Path(PLAN)}


@each_row("folder", ["-x", "a b", "/tmp/$HOME"])
def test_the_folder_is_a_word_whatever_its_name(folder: str) -> None:
    words = made(FSDP, "train.py", folder).options.command
    path = words[words.index("--config_file") + 1]
    assert not path.startswith("-") and os.path.normpath(path) == f"{folder}/accelerate.yaml"


def test_of_a_command_that_starts_elsewhere_the_file_is_found_all_the_same() -> None:
    plan = made(FSDP, "train.py", "plan", directory="/srv")
    (path,) = plan.texts
    assert path.is_absolute() and str(path) in plan.options.command


def test_files_are_written_and_written_again_where_they_are_the_same(tmp_path: Path) -> None:
    plan = made(recipe("zero2", 2), "train.py", str(tmp_path / "a" / "b"))
    paths = write(plan)
    assert {path.name for path in paths} == {"accelerate.yaml", "deepspeed.json"}
    assert write(plan) == paths
    assert all(path.read_text() == plan.texts[path] for path in paths)


@pytest.mark.parametrize("there", ["mine\n", ""])
def test_another_file_is_not_lost_unless_that_is_said(tmp_path: Path, there: str) -> None:
    plan = made(recipe("zero2", 2), "train.py", str(tmp_path))
    (tmp_path / "deepspeed.json").write_text(there)
    with pytest.raises(FilesDifferError) as told:
        write(plan)
    assert str(told.value).startswith(f"{tmp_path / 'deepspeed.json'}: already there")
    assert (tmp_path / "deepspeed.json").read_text() == there
    assert not (tmp_path / "accelerate.yaml").exists(), (
        "nothing is written before it is known that all can be"
    )
    write(plan, plan.texts)
    assert (tmp_path / "deepspeed.json").read_text() == plan.texts[tmp_path / "deepspeed.json"]


def test_a_folder_in_the_way_is_an_error(tmp_path: Path) -> None:
    plan = made(FSDP, "train.py", str(tmp_path))
    (tmp_path / "accelerate.yaml").mkdir()
    with pytest.raises(FilesDifferError):
        write(plan)
    with pytest.raises(IsADirectoryError):
        write(plan, plan.texts)


@each_row("strategy", ["fsdp2", "zero2", "ddp"])
def test_the_line_is_the_one_that_run_would_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    plan = prepared(recipe(strategy, 2), LaunchOptions(("train.py",)), str(tmp_path / "plan"))
    write(plan)
    line = compose((gpu(1), gpu(0)), plan.options, os.environ).line
    call = caller(capsys)
    words = ("run", "--demo", "--gpus", "1,0", "--force", "--dry-run", "--", *plan.options.command)
    assert call(*words).out == f"{line}\n"


def test_the_trainers_own_fsdp_file_is_ours_or_is_refused() -> None:
    typed = "torchrun train.py --fsdp full_shard --fsdp_config own.json"
    found = made(recipe("fsdp2", 2, wrap="LlamaDecoderLayer", checkpointing=True), typed)
    assert command(found).endswith("--fsdp full_shard --fsdp_config plan/fsdp.json")
    values = json.loads(found.texts[Path("plan/fsdp.json")])
    assert values["version"] == 2 and values["transformer_layer_cls_to_wrap"] == "LlamaDecoderLayer"
    assert values["activation_checkpointing"] and values["reshard_after_forward"]
    with pytest.raises(RecipeError, match="asks for FSDP"):
        made(recipe("zero2", 2), typed)
