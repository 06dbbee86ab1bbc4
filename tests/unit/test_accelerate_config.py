"""The user's own configuration of accelerate: it is found and read as accelerate does; and the results."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputui.launching.compose import compose
from gputui.launching.host_environment import ThisHost
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers.accelerate_config import SECTIONS, Config, configuration, default_path
from table_tests import each_row
from unit.accelerating import DEFAULT, HOME, ONE, SPREAD, TWO, made
from unit.builders import gpu
from unit.host_environments import Told
from unit.launches import line, warning
from unit.real_parsers import need, parsed

# The content of the file.


def test_devices_in_the_configuration_do_not_count_and_that_is_said() -> None:
    launch = made("accelerate launch x.py", (2, 0), "distributed_type: MULTI_GPU\ngpu_ids: '0,1'\n")
    assert line(launch) == f"accelerate launch {TWO} --main_process_port=0 x.py"
    (remark,) = launch.remarks
    assert f"gpu_ids 0,1 in {DEFAULT}" in remark


def test_counts_and_ports_in_the_configuration_do_not_count_and_that_is_said() -> None:
    config = "distributed_type: FSDP\nnum_processes: 8\nmain_process_port: 29501\n"
    launch = made("accelerate launch x.py", 2, config)
    assert line(launch) == f"accelerate launch {TWO} --main_process_port=0 x.py"
    assert "num_processes 8, main_process_port 29501 in" in launch.remarks[-1]


MACHINES = "num_machines: 2\nmachine_rank: 1\nmain_process_ip: h\nmain_process_port: 29501\n"


@pytest.mark.parametrize("kind", ["MULTI_GPU", "FSDP"])
def test_a_configuration_for_several_machines_is_kept(kind: str) -> None:
    """The other machines read the same file: a change on one of them would hang them all."""
    config = f"distributed_type: {kind}\nnum_processes: 4\n{MACHINES}"
    launch = made("accelerate launch x.py", 2, config)
    assert line(launch) == "accelerate launch --gpu_ids=all x.py"
    assert any(f"2 machines, as {DEFAULT} says" in remark for remark in launch.remarks)
    assert launch.own is None
    fewer = made("accelerate launch x.py", 1, config)
    assert "num_processes 4 on 2 machines" in warning(fewer) and fewer.argv == launch.argv
    # `--num_machines 1` on the line is the user's word, and overrides the file.
    assert "--main_process_port=0" in made("accelerate launch --num_machines 1 x.py", 2, config).argv


@each_row(
    ("words", "config", "refused"),
    [
        ("--num_machines 2 --machine_rank 1", "", None),
        ("--num_machines 2 --machine_rank 5", "", "--machine_rank 5"),
        ("--num_machines=2 --machine_rank=-1", "", "--machine_rank=-1"),
        ("--machine_rank 2", MACHINES, "--machine_rank 2"),
        ("", MACHINES.replace("rank: 1", "rank: 2"), "machine_rank 2 in"),
        ("--machine_rank 0", MACHINES.replace("rank: 1", "rank: 2"), None),
        # accelerate does not look at it.
        ("--num_machines 1 --machine_rank 5", "", None),
    ],
)
def test_the_number_of_a_machine_is_one_of_them(words: str, config: str, refused: str | None) -> None:
    refusal = made(f"accelerate launch {words} x.py", 2, f"distributed_type: MULTI_GPU\n{config}").refusal
    assert refusal is None if refused is None else refusal is not None and refused in refusal


def test_several_machines_without_their_processes_get_them() -> None:
    launch = made("accelerate launch x.py", 2, f"distributed_type: MULTI_GPU\n{MACHINES}")
    assert line(launch) == "accelerate launch --num_processes=4 --gpu_ids=all x.py"


@each_row(
    ("way", "refused"), [("", True), ("  deepspeed_multinode_launcher: pdsh\n", True), ("standard", False)]
)
def test_deepspeeds_own_way_to_several_machines_takes_other_devices(way: str, refused: bool) -> None:
    own = "  deepspeed_multinode_launcher: standard\n" if way == "standard" else way or "  zero_stage: 2\n"
    config = f"distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n{own}{MACHINES}"
    launch = made("accelerate launch x.py", 2, config)
    assert (launch.own is not None) == refused


def test_no_file_for_several_machines_is_read_on_the_cpu() -> None:
    launch = made("accelerate launch x.py", 0, f"distributed_type: FSDP\nnum_processes: 4\n{MACHINES}")
    assert line(launch) == f"accelerate launch --cpu {ONE} x.py"


# Sizes of a parallelism configuration: accelerate refuses these once all processes have started.


def sized(**sizes: int) -> str:
    lines = [f"  parallelism_config_{name}_size: {size}\n" for name, size in sizes.items()]
    return f"distributed_type: FSDP\nparallelism_config:\n{''.join(lines)}"


@each_row(
    ("sizes", "words"),
    [
        ({"tp": 2, "dp_shard": 4}, "dp_shard 4 × tp 2 = 8"),
        ({"tp": 2}, "tp 2 = 2"),
        ({"cp": 2, "sp": 2}, "cp 2 and sp 2"),
        ({"tp": 2, "dp_replicate": 2}, "dp_replicate 2 × tp 2"),
    ],
)
def test_sizes_that_do_not_make_the_processes_are_refused(sizes: dict[str, int], words: str) -> None:
    refusal = made("accelerate launch x.py", 4, sized(**sizes)).refusal
    assert refusal is not None and words in refusal and DEFAULT in refusal


@each_row("size", ["-2", "0", "abc"])
def test_a_size_that_is_no_number_from_1_is_refused(size: str) -> None:
    config = f"distributed_type: FSDP\nparallelism_config:\n  parallelism_config_tp_size: {size}\n"
    typed = "accelerate launch --use_fsdp --use_parallelism_config --parallelism_config_tp_size"
    for launch in (made("accelerate launch x.py", 4, config), made(f"{typed} {size} x.py", 4)):
        refusal = launch.refusal
        assert refusal is not None and size in refusal and "tp" in refusal


def test_typed_sizes_count_too() -> None:
    line = "accelerate launch --use_fsdp --fsdp_version 2 --use_parallelism_config"
    typed = f"{line} --parallelism_config_tp_size 2 --parallelism_config_dp_shard_size"
    assert made(f"{typed} 2 x.py", 4).refusal is None
    refusal = made(f"{typed} 4 x.py", 4).refusal
    assert refusal is not None and "num_processes is 4" in refusal


@each_row(
    ("command", "sizes"),
    [
        ("accelerate launch x.py", {"tp": 2, "dp_shard": 2}),
        ("accelerate launch x.py", {"dp_shard": 2, "dp_replicate": 2}),
        ("accelerate launch x.py", {"tp": 1}),
        # DeepSpeed's own groups; and with a kind in the command the section does not count.
        ("accelerate launch x.py", {"sp": 2}),
        ("accelerate launch --multi_gpu x.py", {"tp": 8}),
    ],
)
def test_sizes_that_accelerate_takes_are_not_refused(command: str, sizes: dict[str, int]) -> None:
    assert made(command, 4, sized(**sizes)).refusal is None


# Keys that accelerate ignores silently.


@each_row(
    ("config", "key", "meant"),
    [
        ("FSDP\nfsdp_config:\n  fsdp_cpu_offload: true\n", "fsdp_cpu_offload", "fsdp_offload_params"),
        ("FSDP\nfsdp_config:\n  cpu_offload: true\n", "cpu_offload", "fsdp_offload_params"),
        ("FSDP\nfsdp_config:\n  fsdp_versoin: 2\n", "fsdp_versoin", "fsdp_version"),
        ("FSDP\nfsdp_config:\n  nonsense: 2\n", "nonsense", None),
        ("DEEPSPEED\ndeepspeed_config:\n  zero_satge: 2\n", "zero_satge", "zero_stage"),
        ("MULTI_GPU\nparallelism_config:\n  tp_size: 2\n", "tp_size", "parallelism_config_tp_size"),
    ],
)
def test_a_key_that_is_ignored_without_a_word_is_a_warning(config: str, key: str, meant: str | None) -> None:
    said = warning(made("accelerate launch x.py", 2, f"distributed_type: {config}"))
    assert f"ignores {key} of" in said and DEFAULT in said
    assert meant is None or meant in said


@each_row(
    "config",
    [
        "FSDP\nfsdp_config:\n  fsdp_offload_params: true\n  version: 2\n",
        "FSDP\ndeepspeed_config:\n  nonsense: 2\n",
        "DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n",
        "MULTI_GPU\nfsdp_config:\n  fsdp_cpu_offload: true\ndynamo_config:\n  backend: inductor\n",
        "FSDP\nfsdp_config: null\n",
    ],
)
def test_keys_that_it_knows_and_parts_that_do_not_count_are_none(config: str) -> None:
    assert made("accelerate launch x.py", 2, f"distributed_type: {config}").warnings == ()


def test_the_version_and_the_policy_of_a_file_stay() -> None:
    config = "distributed_type: 'NO'\nfsdp_config:\n  {}\n"
    for said, added in (
        ("fsdp_version: 1", ()),
        ("version: 2", ()),
        ("fsdp_sharding_strategy: FULL_SHARD", ()),
        ("fsdp_auto_wrap_policy: NO_WRAP", ("--fsdp_version=2",)),
    ):
        launch = made("accelerate launch --use_fsdp x.py", 2, config.format(said))
        assert tuple(word for word in launch.argv if word.startswith("--fsdp")) == added


def test_the_known_keys_are_the_options_of_the_installed_accelerate() -> None:
    need("accelerate")
    options = parsed({"accelerate": []})["accelerate"]["options"]
    real = {name.lstrip("-").replace("-", "_") for names, _ in options for name in names}
    for section, (_, known) in SECTIONS.items():
        assert known - real <= {"fsdp_ignored_modules"}, section
    assert {name for name in real if name.startswith("fsdp_")} <= SECTIONS["fsdp_config"][1]
    assert {name for name in real if name.startswith("dynamo_")} <= SECTIONS["dynamo_config"][1]
    parallel = {name for name in real if name.startswith("parallelism_config_")}
    assert parallel <= SECTIONS["parallelism_config"][1]


@each_row("kind", ["FSDP", "DEEPSPEED", "MEGATRON_LM"])
@each_row("count", [1, 2])
def test_a_kind_of_run_in_the_configuration_is_respected(kind: str, count: int) -> None:
    """`--multi_gpu` would override it."""
    launch = made("accelerate launch x.py", count, f"distributed_type: {kind}\nnum_processes: {count}\n")
    assert "--multi_gpu" not in line(launch)
    assert "--main_process_port=0" in launch.argv
    assert launch.remarks == ((f"{kind}, as {DEFAULT} says",) if count > 1 else ())


@each_row("written", ["'NO'", "NO", "no", "null", "~", "3"])
def test_a_configuration_for_one_process_becomes_one_for_many(written: str) -> None:
    """An unquoted NO is false in YAML, and accelerate then finds no type that equals it."""
    assert (
        line(made("accelerate launch x.py", 2, f"distributed_type: {written}\n"))
        == f"accelerate launch {SPREAD} x.py"
    )


def test_one_device_under_a_configuration_for_many_is_one_process() -> None:
    launch = made("accelerate launch x.py", 1, "distributed_type: MULTI_GPU\nnum_processes: 1\n")
    assert line(launch) == f"accelerate launch {ONE} --main_process_port=0 x.py"


@each_row("kind", ["MULTI_CPU", "MULTI_NPU", "XLA", "nonsense"])
def test_a_kind_of_run_without_these_devices_is_a_warning(kind: str) -> None:
    launch = made("accelerate launch x.py", 2, f"distributed_type: {kind}\n")
    assert f"{kind} in {DEFAULT}" in warning(launch)


def test_a_kind_of_run_on_the_line_makes_that_of_the_configuration_not_count() -> None:
    launch = made("accelerate launch --multi_gpu x.py", 2, "distributed_type: MULTI_CPU\n")
    assert launch.warnings == ()


def test_the_configuration_is_not_read_on_the_cpu() -> None:
    launch = made("accelerate launch x.py", 0, "distributed_type: FSDP\nnum_processes: 8\n")
    assert line(launch) == f"accelerate launch --cpu {ONE} x.py"
    (remark,) = launch.remarks
    assert "--cpu" in remark and DEFAULT in remark


def test_a_configuration_for_the_cpu_is_a_warning_where_it_counts() -> None:
    config = "distributed_type: 'NO'\nuse_cpu: true\n"
    assert "use_cpu" in warning(made("accelerate launch x.py", 1, config))
    # With several processes, accelerate starts torch's launcher, and does not pass the key on.
    assert made("accelerate launch x.py", 2, config).warnings == ()


def test_another_place_than_this_box_is_a_warning() -> None:
    config = "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\n"
    launch = made("accelerate launch x.py", 2, config)
    assert "SageMaker" in warning(launch)
    assert "--multi_gpu" not in launch.argv


@each_row(
    ("text", "said"),
    [
        ("", "no settings"),
        ("- a\n- b\n", "no settings"),
        ("just words", "no settings"),
        ("a: [", "not YAML"),
        ("a: \t- b:\n c", "not YAML"),
        ("a: !!python/object:os.system x", "not YAML"),
        ("a: !!timestamp x", "not YAML"),
        ("a: !!bool maybe", "not YAML"),
        ("a: 2020-13-45", "not YAML"),
        ("a: " + "[" * 5000, "not YAML"),
        ("num_processes: 2\n", "no distributed_type"),
    ],
)
def test_a_configuration_that_accelerate_stops_at_is_a_warning(text: str, said: str) -> None:
    launch = made("accelerate launch x.py", 2, text)
    assert warning(launch).endswith("so accelerate will fail")
    assert said in warning(launch)


def test_a_configuration_that_says_strange_things_of_devices_is_shown_briefly() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    launch = made("accelerate launch x.py", 2, f"distributed_type: FSDP\n{bomb}gpu_ids: *i\n")
    assert "does not read it" in warning(launch)
    launch = made("accelerate launch x.py", 2, "distributed_type: FSDP\ngpu_ids: [[x, x], [x, x]]\n")
    assert "gpu_ids list in" in launch.remarks[-1]


def test_a_file_that_cannot_be_read_counts_all_the_same() -> None:
    """accelerate may be able to read it, so nothing is added that could contradict it."""

    class Locked(Told):
        def text(self, path: str) -> str | None:
            return None

    launch = compose(
        [gpu(0), gpu(1)], LaunchOptions(("accelerate", "launch", "x.py")), HOME, Locked({DEFAULT: "secret"})
    )
    assert DEFAULT in warning(launch) and "cannot read" in warning(launch)
    assert "--multi_gpu" not in launch.argv


# The choice of the file.


def test_a_file_that_is_named_is_read_instead() -> None:
    files = {"/c.yaml": "distributed_type: FSDP\n", DEFAULT: "distributed_type: 'NO'\n"}
    for given_ in ("--config_file /c.yaml", "--config-file=/c.yaml"):
        launch = made(f"accelerate launch {given_} x.py", files=files)
        assert launch.remarks == ("FSDP, as /c.yaml says",)


def test_a_file_that_is_named_is_read_on_the_cpu_too() -> None:
    launch = made("accelerate launch --config_file /c.yaml x.py", 0, files={"/c.yaml": "["})
    assert "not YAML" in warning(launch)


def test_a_file_that_is_named_and_missing_is_a_warning() -> None:
    launch = made("accelerate launch --config_file c.yaml x.py", directory="/w")
    assert warning(launch).startswith("/w/c.yaml: ")
    assert "no such file" in warning(launch)


def test_a_tilde_that_no_shell_replaced_is_a_plain_letter() -> None:
    """accelerate looks for a directory "~": `--config_file=~/c.yaml`, which bash leaves alone, fails."""
    launch = made(
        "accelerate launch --config_file=~/c.yaml x.py", files={"/home/u/c.yaml": "distributed_type: FSDP"}
    )
    assert "no such file" in warning(launch)


def test_a_relative_file_is_looked_for_where_the_launch_is() -> None:
    files = {"/w/c.yaml": "distributed_type: FSDP\n"}
    launch = made("accelerate launch --config_file c.yaml x.py", files=files, directory="/w")
    assert launch.remarks == ("FSDP, as /w/c.yaml says",)


def test_the_file_of_a_variable_before_the_command_counts() -> None:
    files = {"/hf/accelerate/default_config.yaml": "distributed_type: FSDP\n"}
    for launch in (
        made("accelerate launch x.py", files=files, additions=(("HF_HOME", "/hf"),)),
        made("env HF_HOME=/hf accelerate launch x.py", files=files),
    ):
        assert any("FSDP, as /hf/" in remark for remark in launch.remarks)


def test_the_json_of_older_versions_is_not_read() -> None:
    """accelerate's default path is the YAML file's."""
    json_file = DEFAULT.removesuffix("yaml") + "json"
    assert "--multi_gpu" in line(
        made("accelerate launch x.py", files={json_file: '{"distributed_type": "FSDP"}'})
    )


def test_a_json_that_is_named_is_read() -> None:
    launch = made(
        "accelerate launch --config_file /c.json x.py", files={"/c.json": '{"distributed_type": "FSDP"}'}
    )
    assert launch.remarks == ("FSDP, as /c.json says",)
    broken = made("accelerate launch --config_file /c.json x.py", files={"/c.json": "distributed_type: FSDP"})
    assert "not JSON" in warning(broken)


ENVIRONMENTS: tuple[dict[str, str], ...] = (
    {"HOME": "/home/u"},
    {"HOME": "/home/u/"},
    {"HOME": "/"},
    {"HOME": ""},
    {},
    {"HOME": "/h", "XDG_CACHE_HOME": "/x"},
    {"HOME": "/h", "XDG_CACHE_HOME": "/x/"},
    {"HOME": "/h", "XDG_CACHE_HOME": ""},
    {"HOME": "/h", "XDG_CACHE_HOME": "~/c"},
    {"HOME": "/h", "XDG_CACHE_HOME": "rel"},
    {"HOME": "/h", "HF_HOME": "/f"},
    {"HOME": "/h", "HF_HOME": "~"},
    {"HOME": "/h", "HF_HOME": "~/f", "XDG_CACHE_HOME": "/x"},
    {"HOME": "/h", "HF_HOME": ""},
    {"HOME": "/h", "HF_HOME": "rel/f"},
    {"HOME": "/h", "HF_HOME": f"~{pwd.getpwuid(os.getuid()).pw_name}/f"},
    {"HOME": "/h", "HF_HOME": "~nobody-of-that-name/f"},
)

_ASK = """
import importlib, json, os, sys
import accelerate.commands.config.config_args as config
asked, own = json.load(sys.stdin), dict(os.environ)
found = []
for environment in asked["environments"]:
    for name in ("HOME", "HF_HOME", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)
    os.environ.update(environment)
    found.append(importlib.reload(config).default_config_file)
os.environ.update(own)
kinds = []
for file in asked["files"]:
    try:
        read = config.load_config_from_file(file)
        kinds.append([getattr(read.distributed_type, "value", read.distributed_type), read.gpu_ids])
    except Exception as error:
        kinds.append(type(error).__name__)
print("ANSWER" + json.dumps([found, kinds]))
"""

TEXTS = {
    "multi.yaml": "distributed_type: MULTI_GPU\ngpu_ids: '0,1'\n",
    "all.yaml": "distributed_type: MULTI_GPU\ngpu_ids: all\n",
    "no.yaml": "distributed_type: NO\n",
    "fsdp.yaml": "distributed_type: FSDP\n",
    "deepspeed.json": '{"distributed_type": "DEEPSPEED", "gpu_ids": "1"}',
    "none.yaml": "num_processes: 2\n",
    "list.yaml": "- a\n",
    "empty.yaml": "",
    "garbage.yaml": "a: [",
    "garbage.json": "a: [",
    "list.json": "[1]",
    "yaml.json": "distributed_type: FSDP\n",
    "bool.yaml": "a: !!bool maybe",
}
"""Files for both readers, which must agree on the kind and the devices, or that the file is unusable."""


@pytest.fixture(scope="module")
def accelerates_own(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[Any]]:
    """accelerate's own answers in a child process: its default files, and the content of some files."""
    need("accelerate")
    folder = tmp_path_factory.mktemp("configurations")
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    files = [str(folder / name) for name in (*TEXTS, "missing.yaml")]
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        input=json.dumps({"environments": ENVIRONMENTS, "files": files}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, kinds = json.loads(done.stdout.partition("ANSWER")[2])
    return folder, found, kinds


def test_the_default_file_is_where_accelerate_says(
    accelerates_own: tuple[Path, list[str], list[Any]],
) -> None:
    for environment, real in zip(ENVIRONMENTS, accelerates_own[1], strict=True):
        assert default_path(environment) == real, environment


def test_a_file_is_read_as_accelerate_reads_it(accelerates_own: tuple[Path, list[str], list[Any]]) -> None:
    folder, _, kinds = accelerates_own
    for name, real in zip((*TEXTS, "missing.yaml"), kinds, strict=True):
        ours = configuration(str(folder / name), {}, None, ThisHost())
        assert isinstance(ours, Config)
        assert (ours.problem is not None) == isinstance(real, str), (name, real, ours)
        if isinstance(real, list):
            kind, ids = real
            assert (ours.kind, ours.gpu_ids) == (kind or "NO", None if ids == "all" else ids), name
