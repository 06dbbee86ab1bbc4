"""Intent: call and command are read together, the user's words before defaults, never for other devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputui.choosing.grouping import Grouping
from gputui.choosing.named_devices import NONE
from gputui.launching.intent import (
    NO_INTENT,
    Asked,
    ContradictionError,
    DeviceCount,
    Intent,
    NamedDevices,
    settle,
)
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.read_intent import read_intent
from gputui.launching.shell_words import assignments, split
from table_tests import each_row
from unit.host_environments import Told

TWO_OF_FILE = Intent(devices=NamedDevices("gpu_ids 0,1 in the file", "0,1", firm=False))
FOUR_OF_FILE = Intent(count=DeviceCount("num_processes 4 in the file", 4, firm=False))
TYPED = Intent(devices=NamedDevices("CUDA_VISIBLE_DEVICES=5,4", "5,4"))
COUNTED = Intent(count=DeviceCount("--nproc-per-node 4", 4))
PARALLEL = Intent(count=DeviceCount("-tp 2 -pp 2", 4), group=Grouping(2, 2))


def intent_of(line: str, files: dict[str, str] | None = None, **environ: str) -> Intent:
    additions, command = assignments(split(line))
    return read_intent(LaunchOptions(command, additions=additions), environ, Told(files or {}))


@each_row(
    ("asked", "intent", "settled"),
    [
        (Asked(), NO_INTENT, Asked()),
        (Asked(3), NO_INTENT, Asked(3)),
        (Asked(), TYPED, Asked(names="5,4")),
        (Asked(2), TYPED, Asked(names="5,4")),
        (Asked(names="5,4"), TYPED, Asked(names="5,4")),
        (Asked(names="05, 4"), TYPED, Asked(names="05, 4")),
        (Asked(), Intent(devices=NamedDevices("CUDA_VISIBLE_DEVICES=", "")), Asked(names=NONE)),
        (Asked(), COUNTED, Asked(4)),
        (Asked(4), COUNTED, Asked(4)),
        (Asked(names="3,2,1,0"), COUNTED, Asked(names="3,2,1,0")),
        # Processes on the CPU.
        (Asked(names=NONE), COUNTED, Asked(names=NONE)),
        (Asked(), PARALLEL, Asked(4, group=Grouping(2, 2))),
        (Asked(names="0,1,2,3"), PARALLEL, Asked(names="0,1,2,3", group=Grouping(2, 2))),
        # Defaults give way to the call and to the user's words.
        (Asked(), TWO_OF_FILE, Asked(names="0,1")),
        (Asked(1), TWO_OF_FILE, Asked(1)),
        (Asked(2), TWO_OF_FILE, Asked(2)),
        (Asked(names="7"), TWO_OF_FILE, Asked(names="7")),
        (Asked(), FOUR_OF_FILE, Asked(4)),
        (Asked(2), FOUR_OF_FILE, Asked(2)),
        (Asked(), FOUR_OF_FILE.around(TYPED), Asked(names="5,4")),
        (Asked(), TWO_OF_FILE.around(COUNTED), Asked(4)),
        (Asked(), TWO_OF_FILE.around(Intent(count=DeviceCount("--num_processes 2", 2))), Asked(names="0,1")),
    ],
)
def test_call_and_command_are_heard_together(asked: Asked, intent: Intent, settled: Asked) -> None:
    found = settle(asked, intent)
    assert (found.count, found.names, found.group) == (settled.count, settled.names, settled.group)
    # The numbers are those of the call, or those of the command.
    assert (found.by_command is not None) == (found.names is not None and asked.names is None)


@each_row(
    ("asked", "intent"),
    [
        (Asked(1), TYPED),
        (Asked(3), TYPED),
        (Asked(names="4,5"), TYPED),
        (Asked(names="5"), TYPED),
        (Asked(names=NONE), TYPED),
        (Asked(1), COUNTED),
        (Asked(names="0,1"), COUNTED),
        (Asked(1), Intent(devices=NamedDevices("--cpu", ""))),
        (Asked(4, group=Grouping(4)), PARALLEL),
    ],
)
def test_a_contradiction_names_both_and_force_lets_the_call_win(asked: Asked, intent: Intent) -> None:
    with pytest.raises(ContradictionError) as caught:
        settle(asked, intent)
    said = intent.devices or intent.count
    assert said is not None
    wanted = f"-n {asked.count}" if asked.count is not None else f"--gpus {asked.names}"
    if asked.group is None:
        assert wanted in str(caught.value) and said.words in str(caught.value)
    forced = settle(asked, intent, force=True)
    assert (forced.count, forced.names) == (asked.count, asked.names)


_devices = st.lists(st.integers(0, 9), unique=True, max_size=4).map(lambda found: ",".join(map(str, found)))
_named = st.builds(NamedDevices, st.just("the list"), _devices, st.booleans())
_counted = st.builds(DeviceCount, st.just("the count"), st.integers(1, 5), st.booleans())
_intents = st.builds(Intent, st.none() | _named, st.none() | _counted)
_asked = st.one_of(
    st.just(Asked()),
    st.integers(1, 5).map(lambda number: Asked(number)),
    _devices.map(lambda listed: Asked(names=listed or NONE)),
)


@given(_asked, _intents)
def test_nothing_is_asked_for_that_the_command_would_not_use(asked: Asked, intent: Intent) -> None:
    try:
        settled = settle(asked, intent)
    except ContradictionError:
        assert asked != Asked()
        return
    if intent.devices is not None and intent.devices.firm:
        assert settled.names == intent.devices.names
    elif intent.count is not None and intent.count.firm and settled.names != NONE:
        number = settled.count or len((settled.names or "").split(","))
        assert number == intent.count.number
    elif asked != Asked():
        assert (settled.count, settled.names) == (asked.count, asked.names)


@given(_intents, _intents)
def test_the_users_words_count_wherever_they_stand(outer: Intent, inner: Intent) -> None:
    both = outer.around(inner)
    for first, second, found in (
        (inner.devices, outer.devices, both.devices),
        (inner.count, outer.count, both.count),
    ):
        assert found in (first, second)
        assert found is not None or (first is None and second is None)
        assert found is None or found.firm or not any(each and each.firm for each in (first, second))


@each_row(
    ("line", "words"),
    [
        ("deepspeed --num_gpus 2 t.py", "--num_gpus 2"),
        ("torchrun --nproc_per_node=2 t.py", "--nproc_per_node=2"),
        ("python -m torch.distributed.launch --nproc-per-node 2 t.py", "--nproc-per-node 2"),
        ("python /opt/venv/bin/torchrun --nproc-per-node 2 t.py", "--nproc-per-node 2"),
        ("accelerate launch --num_processes 2 t.py", "--num_processes 2"),
        ("accelerate launch --num_processes 4 --num_machines 2 t.py", "--num_processes 4"),
        ("mpirun -np 2 python t.py", "-np 2"),
        ("mpirun -np 1 a : -np 1 b", "-np 1 : -np 1"),
        ("uv run nice -n 5 torchrun --nproc-per-node 2 t.py", "--nproc-per-node 2"),
    ],
)
def test_a_number_of_processes_is_a_number_of_devices(line: str, words: str) -> None:
    assert intent_of(line) == Intent(count=DeviceCount(words, 2))


def test_a_count_of_whatever_is_visible_says_nothing() -> None:
    for line in (
        "torchrun --nproc-per-node gpu t.py",
        "torchrun --nproc-per-node=auto t.py",
        "deepspeed t.py",
    ):
        assert intent_of(line) == NO_INTENT


CONFIG = "/home/u/.cache/huggingface/accelerate/default_config.yaml"


@each_row(
    ("text", "devices", "count", "group"),
    [
        ("distributed_type: MULTI_GPU\nnum_processes: 4\ngpu_ids: all\n", None, 4, None),
        ("distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: 3,1\n", "3,1", 2, None),
        ("distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\n", None, 4, None),
        ("distributed_type: 'NO'\nuse_cpu: true\nnum_processes: 1\n", "", None, None),
        (
            "distributed_type: FSDP\nparallelism_config:\n  parallelism_config_tp_size: 2\n"
            "  parallelism_config_dp_shard_size: 2\n",
            None,
            4,
            Grouping(2),
        ),
    ],
)
def test_what_a_configuration_of_accelerate_says_is_a_default(
    text: str, devices: str | None, count: int | None, group: Grouping | None
) -> None:
    intent = intent_of("accelerate launch t.py", {CONFIG: text}, HOME="/home/u")
    assert (intent.devices.listed if intent.devices else None) == devices
    assert (intent.count.number if intent.count else None) == count
    assert intent.group == group
    assert not any(said.firm for said in (intent.devices, intent.count) if said)
    # The launcher's own options count, and a file that is not read does not.
    typed = intent_of("accelerate launch --num_processes 3 --gpu_ids 0 t.py", {CONFIG: text}, HOME="/home/u")
    assert (typed.devices, typed.count) == (
        NamedDevices("--gpu_ids 0", "0"),
        DeviceCount("--num_processes 3", 3),
    )
    assert intent_of("accelerate launch --cpu t.py", {CONFIG: text}, HOME="/home/u").devices == NamedDevices(
        "--cpu", ""
    )


@each_row(
    ("line", "intent"),
    [
        ("docker run --gpus all img torchrun --nproc-per-node 2 t.py", (None, 2)),
        ("docker run --gpus all img python t.py", (None, None)),
        ("docker run --gpus 3 img python t.py", (None, 3)),
        ("""podman run --device nvidia.com/gpu=1 img python t.py""", ("1", None)),
        # In a container devices are counted in bus order.
        ("""docker run --gpus '"device=5,4"' img python t.py""", ("4,5", None)),
        ("docker run -e CUDA_VISIBLE_DEVICES=1,0 --gpus all img python t.py", ("1,0", None)),
        # Devices are numbered anew inside, so a list there only says how many devices are needed.
        ("docker run img env CUDA_VISIBLE_DEVICES=0 python t.py", (None, 1)),
        ("docker run --gpus all img bash -c 'CUDA_VISIBLE_DEVICES=0,1 python t.py'", (None, 2)),
        ("docker run --gpus all img bash -c 'CUDA_VISIBLE_DEVICES=2,3 python t.py'", (None, None)),
        ("docker run --gpus all vllm/vllm-openai --model m -tp 4", (None, 4)),
        ("sudo docker run --gpus 2 img torchrun t.py", (None, 2)),
        (
            "docker run --gpus all ghcr.io/huggingface/text-generation-inference:3.0 --model-id m"
            " --num-shard 2",
            (None, 2),
        ),
        ("docker run --gpus all user/composer:1 -n 2", (None, None)),
    ],
)
def test_a_container_says_what_it_is_given_and_what_is_started_in_it(
    line: str, intent: tuple[str | None, int | None]
) -> None:
    found = intent_of(line)
    assert (found.devices and found.devices.listed, found.count and found.count.number) == intent


SCRIPT = """#!/bin/bash
GPUS=${1:-4}
torchrun --nproc_per_node $GPUS t.py
"""


@each_row(
    ("line", "script", "count", "devices"),
    [
        ("bash train.sh", SCRIPT, 4, None),
        ("bash -x train.sh 2", SCRIPT, 2, None),
        ("./train.sh 2", SCRIPT, 2, None),
        ("nice ./train.sh 2", SCRIPT, 2, None),
        ("bash train.sh", "export CUDA_VISIBLE_DEVICES=2,3\npython t.py", None, "2,3"),
        (
            "bash train.sh",
            "CUDA_VISIBLE_DEVICES=2 python a.py & CUDA_VISIBLE_DEVICES=3 python b.py",
            None,
            "2,3",
        ),
        ("bash train.sh", "deepspeed --include localhost:1 t.py", None, "1"),
        ("bash train.sh", "torchrun --nproc-per-node 2 a.py; torchrun --nproc-per-node 4 b.py", 4, None),
        ("bash train.sh", "bash other.sh 3", 3, None),
        ("make train CUDA_VISIBLE_DEVICES=1", "", None, "1"),
        # Part of the work runs on the CPU, and then all of it.
        ("bash train.sh", "CUDA_VISIBLE_DEVICES= python a.py; torchrun --nproc-per-node 2 b.py", 2, None),
        ("bash train.sh", "export CUDA_VISIBLE_DEVICES=\npython a.py; python b.py", None, ""),
        ("mpirun -np 1 bash train.sh", "CUDA_VISIBLE_DEVICES=2 python a.py", 1, "2"),
    ],
)
def test_a_script_says_what_its_commands_say(
    line: str, script: str, count: int | None, devices: str | None
) -> None:
    files = {"train.sh": script, "./train.sh": f"#!/usr/bin/env bash\n{script}", "other.sh": SCRIPT}
    found = intent_of(line, files)
    assert found.count is None or found.count.firm
    assert (found.count.number if found.count else None) == count
    assert (found.devices.listed if found.devices else None) == devices
    assert found.devices is None or not found.devices.rewritable
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("N=$(count)\ntorchrun --nproc-per-node $N t.py", "train.sh:2"),
        ("if probe; then N=1; else N=8; fi\ntorchrun --nproc-per-node $N t.py", "train.sh:2"),
    ],
)
def test_what_cannot_be_followed_is_a_warning_with_file_and_line(script: str, place: str) -> None:
    found = intent_of("bash train.sh", {"train.sh": script})
    assert (found.devices, found.count) == (None, None)
    assert len(found.warnings) == 1 and place in found.warnings[0]


@each_row(
    ("line", "script", "devices"),
    [
        # deepspeed takes the first devices, whatever is visible, unless its command is rewritten.
        ("bash train.sh", "deepspeed --num_gpus 2 t.py", "0,1"),
        ("bash train.sh", "export CUDA_VISIBLE_DEVICES=4,5\ndeepspeed --num_gpus 2 t.py", "0,1"),
        ("mpirun -np 1 deepspeed --num_gpus 2 t.py", "", "0,1"),
    ],
)
def test_what_is_not_rewritten_names_what_it_will_really_use(
    line: str, script: str, devices: str | None
) -> None:
    found = intent_of(line, {"train.sh": script, "./train.sh": f"#!/bin/sh\n{script}"})
    assert (found.devices.listed if found.devices else None) == devices
    assert found.devices is None or not found.devices.rewritable


@each_row(
    ("script", "count", "needs"),
    [
        ("python t.py --device cuda:1", None, 2),
        ("lm_eval --model hf --device cuda:3", None, 4),
        ("python t.py --num-gpus 4", 4, None),
        ("python t.py --device cuda:0", 1, None),
    ],
)
def test_in_a_script_what_is_counted_among_the_visible_devices_is_no_choice(
    script: str, count: int | None, needs: int | None
) -> None:
    found = intent_of("bash train.sh", {"train.sh": script})
    assert found.devices is None and (found.count is None or not found.count.firm)
    assert (found.count.number if found.count else None) == count
    assert (found.needs.number if found.needs else None) == needs


@each_row(
    "script",
    [
        "unset CUDA_VISIBLE_DEVICES\npython t.py",
        "env -u CUDA_VISIBLE_DEVICES python t.py",
        "docker run --gpus all img python t.py",
        "deepspeed --exclude localhost:0 t.py",
    ],
)
def test_a_script_that_takes_every_device_is_refused_unless_it_is_confined(script: str) -> None:
    found = intent_of("bash train.sh", {"train.sh": script})
    assert found.leaves is not None and "train.sh:" in found.leaves
    assert found.confined().leaves is None


@each_row(
    "script",
    [
        "case $SLURM_LOCALID in 0) export CUDA_VISIBLE_DEVICES=0;; *) export CUDA_VISIBLE_DEVICES=1;; esac\n"
        "python t.py",
        "CUDA_VISIBLE_DEVICES=$((LOCAL_RANK)) python t.py",
        "export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\npython t.py",
        "CUDA_VISIBLE_DEVICES=$(free-ones) python t.py",
        "if probe; then export CUDA_VISIBLE_DEVICES=4; else export CUDA_VISIBLE_DEVICES=7; fi\npython t",
        "if probe; then\nCUDA_VISIBLE_DEVICES=1 python t.py\nfi",
    ],
)
def test_a_list_that_cannot_be_followed_names_no_devices(script: str) -> None:
    found = intent_of("mpirun -np 2 bash train.sh", {"train.sh": script})
    assert found.devices is None and found.leaves is None


def test_the_script_is_that_of_the_directory_that_the_script_goes_to() -> None:
    files = {"m.py": 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"', "sub/m.py": "import os"}
    found = intent_of("bash train.sh", {**files, "train.sh": "cd sub\npython m.py"})
    assert found == NO_INTENT
    assert intent_of("bash train.sh", {**files, "train.sh": "python m.py"}).devices is not None


@pytest.mark.parametrize("line", ["CUDA_VISIBLE_DEVICES=0-3 t", "accelerate launch --gpu_ids 0-3 t.py"])
def test_a_list_that_its_reader_cannot_read_is_not_taken_for_none(line: str) -> None:
    found = intent_of(line).devices
    assert found is not None and found.listed == "0-3"


def test_what_deepspeed_leaves_out_is_never_taken() -> None:
    intent = intent_of("deepspeed --exclude localhost:1,2 t.py")
    settled = settle(Asked(2), intent)
    assert settled.count == 2 and settled.excluded is not None and settled.excluded.listed == "1,2"
    for asked in (Asked(), Asked(names="0,1")):
        with pytest.raises(ContradictionError):
            settle(asked, intent)
    assert settle(Asked(names="0,3"), intent).names == "0,3"


def test_what_is_counted_from_the_visible_devices_takes_the_selected_ones() -> None:
    script = "N=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\\n' | wc -l)\ntorchrun --nproc-per-node $N t.py"
    assert intent_of("bash train.sh", {"train.sh": script}) == NO_INTENT


GUARDED = (
    'if [ -z "$CUDA_VISIBLE_DEVICES" ]; then export CUDA_VISIBLE_DEVICES=0; fi\npython t.py',
    "export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0,1}\npython t.py",
    "# CUDA_VISIBLE_DEVICES=0\npython t.py",
    "GPUS=${CUDA_VISIBLE_DEVICES:-0}; export CUDA_VISIBLE_DEVICES=$GPUS\npython t.py",
    "CUDA_VISIBLE_DEVICES= python prepare.py\npython t.py",
    "python t.py",
)


@each_row(
    ("script", "line"),
    [
        ("\nCUDA_VISIBLE_DEVICES=$(free-ones) python t.py", 2),
        (
            "if probe; then export CUDA_VISIBLE_DEVICES=4; else export CUDA_VISIBLE_DEVICES=7; fi\npython t",
            1,
        ),
        ("if probe; then\n  CUDA_VISIBLE_DEVICES=1 python t.py\nfi", 2),
        ("if probe; then\n  CUDA_VISIBLE_DEVICES=-1 python t.py\nfi", None),
        ("if probe; then\n  CUDA_VISIBLE_DEVICES= python t.py\nfi", None),
        *((script, None) for script in GUARDED),
    ],
)
def test_a_list_of_a_shell_script_that_cannot_be_followed_is_a_doubt(script: str, line: int | None) -> None:
    found = intent_of("bash train.sh", {"train.sh": script})
    assert (found.doubt is not None) == (line is not None)
    assert line is None or f"train.sh:{line} " in str(found.doubt)
    assert found.confined().doubt is None


@each_row(
    ("script", "line"),
    [
        ('import os\nos.environ["CUDA_VISIBLE_DEVICES"] = args.gpu', 2),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, ids))', 1),
        ('if debug:\n    os.environ["CUDA_VISIBLE_DEVICES"] = "0"', 2),
        ('if debug:\n    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"', None),
        ('if debug:\n    os.environ["CUDA_VISIBLE_DEVICES"] = ""', None),
        ("os.environ.update(CUDA_VISIBLE_DEVICES=str(args.gpu))", 1),
        ('del os.environ["CUDA_VISIBLE_DEVICES"]', 1),
        ('os.environ.pop("CUDA_VISIBLE_DEVICES", None)', 1),
        ('if "CUDA_VISIBLE_DEVICES" not in environ:\n    environ["CUDA_VISIBLE_DEVICES"] = "0"', None),
        (
            'if environ.get("CUDA_VISIBLE_DEVICES", "") == "":\n    environ["CUDA_VISIBLE_DEVICES"] = "0"',
            None,
        ),
        ('ids = os.getenv("CUDA_VISIBLE_DEVICES", "0")\nos.environ["CUDA_VISIBLE_DEVICES"] = ids', None),
        ('os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")', None),
        ('x = os.environ.get("CUDA_VISIBLE_DEVICES", "0")', None),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = os.getenv("CUDA_VISIBLE_DEVICES") or "0"', None),
        ('# os.environ["CUDA_VISIBLE_DEVICES"] = gpu', None),
        ('print(os.environ["CUDA_VISIBLE_DEVICES"])', None),
    ],
)
def test_a_list_of_a_python_script_that_cannot_be_followed_is_a_doubt(script: str, line: int | None) -> None:
    found = intent_of("python train.py", {"train.py": script})
    assert (found.doubt is not None) == (line is not None)
    assert line is None or f"train.py:{line} " in str(found.doubt)
