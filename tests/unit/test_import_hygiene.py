"""The modules that a call imports, seen in a fresh interpreter; and the dependencies between the packages."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import grimp
import pytest

from gputui.sources.simulated.boxes import BOXES
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import box, busy, gpu, recording

ROOT = Path(__file__).parents[2]

PROBE = """
import contextlib, io, json, sys
from gputui.cli.main import main

with contextlib.redirect_stdout(io.StringIO()):
    status = main(json.loads(sys.argv[1]))
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules}), sorted(sys.modules)]))
"""

CALLS = {
    "ls": ["ls", "--demo"],
    "ls --json": ["ls", "--demo", "--json"],
    "pick": ["pick", "--demo", "-n", "2"],
    "pick --format env": ["pick", "--demo", "--format", "env"],
    "pick --gpus": ["pick", "--demo", "--gpus", "4,5"],
    "run --dry-run": ["run", "--demo", "--dry-run", "--", "python", "train.py"],
    "run --dry-run torchrun": [
        "run",
        "--demo",
        "--dry-run",
        "-n",
        "2",
        "--launcher",
        "torchrun",
        "--",
        "t.py",
    ],
    "plan": ["plan", "--demo", "8B"],
    "plan --json": ["plan", "--demo", "--parameters", "8B", "--json"],
    "run -n auto": ["run", "--demo", "--dry-run", "-n", "auto", "--parameters", "1B", "--", "t.py"],
    "export": ["export", "--demo", "--as", "json", "--", "python", "train.py"],
    "compare --dry-run": ["compare", "--demo", "--dry-run", "--vary", "env:X=0,1", "--", "python", "t.py"],
    "metrics": ["metrics", "--demo"],
    "ls --format": ["ls", "--demo", "--format", "{free}"],
    "each --dry-run": ["each", "--demo", "--dry-run", "--", "python", "t.py", "--seed", "{1..2}"],
    "record": ["record", "--demo", "-"],
    "config": ["config"],
    "docs": ["docs"],
}


def _imported(words: list[str]) -> tuple[int, set[str], set[str]]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "PET_", "COV_", "COVERAGE"))}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(words)],
        capture_output=True,
        env=environ,
        timeout=60,
        check=True,
    )
    status, packages, modules = json.loads(done.stdout)
    return status, set(packages), set(modules)


@each_row("call", CALLS)
def test_a_call_starts_without_textual_torch_or_nvml(call: str) -> None:
    status, packages, modules = _imported(CALLS[call])
    assert status == 0
    assert not packages & {
        "textual",
        "rich",
        "torch",
        "numpy",
        "pynvml",
        "psutil",
        "platformdirs",
        "shtab",
        "asyncio",
    }
    assert not {module for module in modules if module.startswith("gputui.tui")}


def test_a_recording_is_replayed_without_textual_torch_or_nvml(tmp_path: Path) -> None:
    file = recording(tmp_path, box(gpu(0), busy(gpu(1))))
    status, packages, _ = _imported(["ls", "--from", file])
    assert status == 0
    assert not packages & {"textual", "rich", "torch", "numpy", "pynvml", "psutil", "asyncio"}


def test_the_screen_starts_without_openssl() -> None:
    script = (
        "from gputui.tui.asyncio_without_tls import import_asyncio; import_asyncio();"
        "import sys, gputui.tui.app; print('_ssl' in sys.modules);"
        "import ssl; print(ssl.OPENSSL_VERSION_NUMBER > 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60, check=True, text=True
    )
    assert done.stdout.split() == ["False", "True"]


def test_the_first_frame_is_drawn_without_what_looks_for_best_sets() -> None:
    script = "import sys, gputui.tui.run, gputui.tui.views.first_frame; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60, check=True, text=True
    )
    late = {"textual", "gputui.choosing.best", "gputui.choosing.pick", "gputui.launching.compose"}
    assert not late & set(done.stdout.split())


def test_a_job_is_read_without_what_composes_a_launch() -> None:
    script = "import sys, gputui.jobs.store, gputui.jobs.last_lines; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60, check=True, text=True
    )
    assert not [name for name in done.stdout.split() if name.startswith("gputui.launching")]


def test_a_pick_makes_no_class_for_documents_and_what_only_a_devices_page_shows(
    simulated_nvml: SimulatedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    for name, value in simulated_nvml.environment({}).items():
        monkeypatch.setenv(name, value)
    status, _, modules = _imported(["pick", "-n", "1"])
    assert status == 0
    assert not {"gputui.inventory.telemetry", "gputui.inventory.typed_json", "pathlib"} & set(modules)


def test_ids_are_picked_without_json_or_another_subcommand() -> None:
    _, packages, modules = _imported(["pick", "--demo"])
    assert "subprocess" not in packages
    assert {m for m in modules if m.startswith("gputui.cli.")} <= {
        *(
            "gputui.cli.main",
            "gputui.cli.dispatch",
            "gputui.cli.common",
            "gputui.cli.allocation_listener",
            "gputui.cli.request_options",
            "gputui.cli.hosts_options",
            "gputui.cli.pick",
            "gputui.cli.subcommands",
        ),
    }


@each_row(
    "package",
    [
        *("inventory", "vendors", "choosing", "planning", "launching", "checking"),
        *("sources.simulated.source", "sources.recorded"),
    ],
)
def test_a_package_below_imports_the_standard_library_and_gputui_only(package: str) -> None:
    script = (
        "import sys; before = set(sys.modules);"
        f"import pkgutil, importlib, gputui.{package} as package;"
        "[importlib.import_module(package.__name__ + '.' + found.name)"
        " for found in pkgutil.iter_modules(getattr(package, '__path__', []))];"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60, check=True, text=True
    )
    foreign = {name for name in done.stdout.split() if name not in sys.stdlib_module_names}
    # Python 3.10 has no tomllib.
    assert foreign - ({"tomli"} if sys.version_info < (3, 11) else set()) == {"gputui"}


def test_the_arrows_between_the_packages_point_one_way() -> None:
    lint = shutil.which("lint-imports", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    assert lint, "import-linter belongs to the test requirements"
    done = subprocess.run(
        [lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count, those for type checkers do not."""
    graph = grimp.build_graph("gputui", exclude_type_checking_imports=True, cache_dir=None)
    # (One module hands itself on, in place of psutil.)
    left = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
    while outer := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in outer:
            del left[module]
    assert not left, sorted(left)


@pytest.mark.thorough
def test_no_line_of_a_function_is_a_text_that_goes_nowhere() -> None:
    """Without parentheses, the second half of a sentence is lost (`x = "a"`, then `"b"`)."""
    for path in (ROOT / "app").rglob("*.py"):
        functions = [
            each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.FunctionDef)
        ]
        blocks = (getattr(each, "body", ()) for function in functions for each in ast.walk(function))
        for before, line in (pair for block in blocks if isinstance(block, list) for pair in pairwise(block)):
            if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
                # A string below an attribute, or below a field of a class, is a docstring.
                names = getattr(before, "targets", [getattr(before, "target", None)])
                assert not isinstance(names[0], ast.Name) or line.value.value is ..., (path, line.lineno)
