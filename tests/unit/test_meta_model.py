"""A model that another Python counts: its transformers is simulated, broken, slow, missing, or real."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from gputui.checking.plan_proof import meta_model
from gputui.planning.model import PlanningError

PYTHON = (sys.executable, "-S")
CONFIG = {
    "model_type": "stablelm",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def pretending(folder: Path, code: str) -> dict[str, str]:
    """The environment of an interpreter with these modules for torch and transformers."""
    modules = folder / "modules"
    modules.mkdir()
    (modules / "torch.py").write_text(_TORCH)
    (modules / "transformers.py").write_text(code)
    return {"PYTHONPATH": str(modules), "PATH": os.environ.get("PATH", "")}


_TORCH = """
import contextlib
@contextlib.contextmanager
def device(name):
    yield
"""

_TRANSFORMERS = """
__version__ = "9.9"
class Parameter:
    def __init__(self, number): self.number = number
    def numel(self): return self.number
class Module:
    def __init__(self, own, children=()):
        self.own, self.children = [Parameter(n) for n in own], list(children)
    def modules(self): return [self, *(each for child in self.children for each in child.modules())]
    def parameters(self, recurse=True):
        return [p for m in self.modules() for p in m.own] if recurse else self.own
class Block(Module): pass
class NewestForCausalLM(Module):
    _no_split_modules = ["Block"]
    @classmethod
    def from_config(cls, config):
        return cls([], [Module([1000]), Block([10], [Module([200, 30])]), Block([10], [Module([200, 40])])])
class AutoConfig:
    @staticmethod
    def from_pretrained(path, local_files_only, trust_remote_code):
        assert local_files_only and not trust_remote_code
        return object()
AutoModelForCausalLM = AutoModelForSeq2SeqLM = AutoModel = NewestForCausalLM
"""


def test_counts_are_what_the_other_python_answers(place: Path) -> None:
    found = meta_model(PYTHON, pretending(place, _TRANSFORMERS), place, "newest")
    assert (found.name, found.architecture, found.counted) == ("newest", "NewestForCausalLM", "transformers")
    assert (found.parameters, found.largest_layer) == (1490, 1000)
    assert (found.wrap_class, found.blocks, found.largest_block) == ("Block", 2, 250)
    assert (found.hidden, found.layers) == (64, 3)


@pytest.mark.parametrize(
    "code",
    [
        "raise ImportError('broken\\nin two lines')",
        "import sys; sys.exit('at once')",
        "import os; os._exit(3)",
        "print('x' * 100000); raise RuntimeError('\\x1b[2J')",
        _TRANSFORMERS.replace("[1000]", "[-5000]"),
        _TRANSFORMERS.replace('"9.9"', '"\\x1b[2J"').replace("[1000]", "['many']"),
    ],
)
def test_whatever_goes_wrong_there_is_one_line(place: Path, code: str) -> None:
    with pytest.raises(PlanningError) as refused:
        meta_model(PYTHON, pretending(place, code), place, "newest")
    assert str(refused.value).isprintable()


def test_a_python_without_transformers_says_what_to_give(place: Path) -> None:
    with pytest.raises(PlanningError) as refused:
        meta_model(PYTHON, {}, place, "newest")
    assert "8B" in str(refused.value)


def test_a_python_that_is_not_there(place: Path) -> None:
    with pytest.raises(PlanningError):
        meta_model(("/nonexistent/python",), {}, place, "newest")


def test_a_transformers_that_never_comes_is_ended(place: Path) -> None:
    environment = pretending(place, "import signal; signal.pause()")
    with pytest.raises(PlanningError) as refused:
        meta_model(PYTHON, environment, place, "newest", seconds=1)
    assert "1 second" in str(refused.value)


@needs_transformers
def test_an_architecture_without_a_closed_form_is_counted_by_the_real_transformers(place: Path) -> None:
    found = meta_model((sys.executable,), dict(os.environ), place, "stable")
    block = 4 * 64 * 64 + 3 * 64 * 128 + 4 * 64
    assert (found.parameters, found.largest_block) == (2 * 100 * 64 + 3 * block + 2 * 64, block)
    assert found.wrap_class == "StableLmDecoderLayer"
