"""The devices that a Python script names, read without executing it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching.python_script import PythonReading, read_python
from table_tests import each_row

VISIBLE = "CUDA_VISIBLE_DEVICES"


def read(text: str, variable: str = VISIBLE, device_type: str = "cuda") -> PythonReading:
    """The reading of a script with this text."""
    return read_python(text, variable, device_type)


# The list that the script sets for itself.


@each_row(
    ("text", "devices"),
    [
        ('import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,1"\nimport torch', "0,1"),
        ("from os import environ\nenviron['CUDA_VISIBLE_DEVICES'] = '2'", "2"),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ""', ""),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = str(3)', "3"),
        ('os.environ.update({"A": "1", "CUDA_VISIBLE_DEVICES": "4,5"})', "4,5"),
        ('os.environ.update(CUDA_VISIBLE_DEVICES="4")', "4"),
        ('os.putenv("CUDA_VISIBLE_DEVICES", "3")', "3"),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "0"\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"', "1"),
    ],
)
def test_a_list_that_is_always_set(text: str, devices: str) -> None:
    own = read(text).lists[-1]
    assert own.text == devices


@each_row(
    "text",
    [
        'if debug:\n    os.environ["CUDA_VISIBLE_DEVICES"] = "0"',
        'if "OTHER" not in os.environ:\n    os.environ["CUDA_VISIBLE_DEVICES"] = "0"',
        'def main():\n    os.environ["CUDA_VISIBLE_DEVICES"] = "0"',
        'for i in x:\n    os.environ["CUDA_VISIBLE_DEVICES"] = "0"',
        'try:\n    os.environ["CUDA_VISIBLE_DEVICES"] = "0"\nexcept E:\n    pass',
    ],
)
def test_a_list_that_is_perhaps_set_does_not_count(text: str) -> None:
    assert read(text).lists == ()


@each_row(
    "text",
    [
        'os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")',
        'os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0")',
        'os.environ["CUDA_VISIBLE_DEVICES"] = os.getenv("CUDA_VISIBLE_DEVICES", "0")',
        'os.environ["CUDA_VISIBLE_DEVICES"] = os.getenv("CUDA_VISIBLE_DEVICES") or "0"',
        *(
            f'if {test}:\n    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"'
            for test in (
                '"CUDA_VISIBLE_DEVICES" not in os.environ',
                'not "CUDA_VISIBLE_DEVICES" in os.environ.keys()',
                'os.environ.get("CUDA_VISIBLE_DEVICES") is None',
                'os.environ.get("CUDA_VISIBLE_DEVICES", "") == ""',
                'not os.getenv("CUDA_VISIBLE_DEVICES")',
                'x and "CUDA_VISIBLE_DEVICES" not in os.environ',
            )
        ),
    ],
)
def test_a_default_does_not_count_against_what_is_inherited(text: str) -> None:
    found = read(text)
    assert found.lists == ()


@each_row(
    "text",
    [
        'del os.environ["CUDA_VISIBLE_DEVICES"]',
        'os.environ.pop("CUDA_VISIBLE_DEVICES", None)',
        "os.unsetenv(\n'CUDA_VISIBLE_DEVICES')",
    ],
)
def test_a_list_that_is_taken_away_names_no_devices(text: str) -> None:
    assert read(text).lists == ()


@each_row(
    "text",
    [
        'os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu',
        'os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, ids))',
        'os.environ["CUDA_VISIBLE_DEVICES"] = f"{n}"',
        'X = "1"\nX = "2"\nos.environ["CUDA_VISIBLE_DEVICES"] = X',
        "os.environ.update(CUDA_VISIBLE_DEVICES=str(args.gpu))",
    ],
)
def test_a_list_that_is_computed_is_not_known(text: str) -> None:
    assert read(text).lists == ()


@each_row(
    "text",
    [
        'os.environ["OTHER"] = "0"',
        'print(os.environ["CUDA_VISIBLE_DEVICES"])',
        'env["CUDA_VISIBLE_DEVICES"] = "0"',
        '"""os.environ["CUDA_VISIBLE_DEVICES"] = "0" """',
        '# os.environ["CUDA_VISIBLE_DEVICES"] = "0"',
        'os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]',
    ],
)
def test_what_sets_no_list(text: str) -> None:
    found = read(text)
    assert found.lists == ()


# Named devices.


@each_row(
    ("text", "needs"),
    [
        ('device = "cuda:3"', 4),
        ('x.to("cuda:0")', 1),
        ('torch.device("cuda", 2)', 3),
        ('torch.device("cuda", index=2)', 3),
        ("torch.device('cuda:1')", 2),
        ("torch.cuda.set_device(3)", 4),
        ("with torch.cuda.device(1): pass", 2),
        ("model.cuda(5)", 6),
        ("nn.DataParallel(model, device_ids=[0, 1, 2, 3])", 4),
        ('tf.device("/GPU:1")', 2),
        ('tf.device("/device:GPU:1")', 2),
        ("jax.devices()[3]", 4),
        ("jax.local_devices()[1]", 2),
        ('jax.devices("gpu")[1]', 2),
        ("Trainer(devices=4)", 4),
        ("pl.Trainer(accelerator='gpu', devices=[2, 3])", 4),
        ("L.Fabric(devices='2,3')", 4),
        ("Trainer(gpus='2')", 2),
        ("Trainer(gpus=2)", 2),
    ],
)
def test_the_devices_that_a_script_needs(text: str, needs: int) -> None:
    found = read(text)
    assert [each.needs for each in found.uses] == [needs]
    assert found.uses[0].line == text.count("\n") + 1


@each_row(
    "text",
    [
        'device = "cuda"',
        'device = f"cuda:{rank}"',
        "torch.cuda.set_device(local_rank)",
        "model.cuda(non_blocking=True)",
        "model.cuda()",
        "x[3]",
        "gpus = ['a', 'b']\ngpus[1]",
        'cpus = tf.config.list_physical_devices("CPU")\ncpus[3]',
        "tf.config.list_physical_devices()[3]",
        'jax.devices("cpu")[3]',
        "Trainer(devices='auto')",
        "Trainer(devices=-1)",
        "Trainer(accelerator='cpu', devices=8)",
        "DDP(model, device_ids=[local_rank])",
        '"""on cuda:3"""',
        'help = "a device, cuda:0 for example"',
        "jax.devices()[-1]",
        "model.cuda(True)",
    ],
)
def test_what_names_no_device(text: str) -> None:
    assert read(text).uses == ()


def test_a_device_in_a_function_or_as_a_default_counts_too() -> None:
    found = read(
        'def main():\n    x.to("cuda:1")\nparser.add_argument("--device", default="cuda:2")\n'
        'd = "cuda:3" if x else "cpu"'
    )
    assert [(each.line, each.needs) for each in found.uses] == [(2, 2), (3, 3), (4, 4)]


def test_another_vendors_words_are_its_own() -> None:
    found = read(
        'os.environ["ACME_VISIBLE_DEVICES"] = "1"\nx.to("rocket:3")\nx.rocket(1)\nx.to("cuda:7")',
        variable="ACME_VISIBLE_DEVICES",
        device_type="rocket",
    )
    assert found.lists and [each.needs for each in found.uses] == [4, 2]


@each_row(
    ("text", "trains"),
    [
        ("from transformers import AutoModel, Trainer", True),
        ("from transformers import TrainingArguments as A", True),
        ("from transformers.trainer_seq2seq import Seq2SeqTrainer", True),
        ("def main():\n    from transformers import Seq2SeqTrainingArguments", True),
        ("import torch, transformers\ntransformers.Trainer(model).train()", True),
        ("from transformers import AutoModel", False),
        ("import transformers\nlightning.Trainer(devices=2)", False),
        ("from lightning import Trainer", False),
        ("from flax.training import Trainer", False),
        ("import jax, tensorflow", False),
        ("# from transformers import Trainer", False),
    ],
)
def test_whether_the_trainer_of_transformers_is_imported(text: str, trains: bool) -> None:
    assert read(text).trainer == trains


@settings(max_examples=25)
@given(
    st.one_of(
        st.text(),
        st.binary(max_size=200).map(lambda data: data.decode("utf-8", "surrogateescape")),
        st.lists(
            st.sampled_from(
                [
                    "os.environ",
                    '["CUDA_VISIBLE_DEVICES"]',
                    "=",
                    '"0"',
                    "torch.device(",
                    "'cuda'",
                    ",",
                    ")",
                    "[",
                    "]",
                    "\n",
                    "jax.devices()",
                    "[3]",
                    "Trainer(",
                    "devices",
                    "del ",
                    "-",
                    "1",
                    "if x:\n  ",
                    "*",
                    "range(",
                    ".update(",
                    "**",
                    "{",
                ]
            ),
            max_size=15,
        ).map("".join),
    )
)
def test_no_script_raises(text: str) -> None:
    assert isinstance(read(text + "\ndevices = 1"), PythonReading)


@each_row(
    "text",
    [
        "-" * 200_000 + "1",
        "(" * 200_000,
        "a" + ".a" * 100_000,
        "a" + "()" * 100_000,
        "not " * 100_000,
        "1" + "+1" * 100_000,
        "\0",
    ],
    ids=["signs", "parentheses", "attributes", "calls", "words", "sums", "nul"],
)
def test_a_script_that_is_nested_deep_is_read(text: str) -> None:
    assert isinstance(read(f"devices = {text}"), PythonReading)
