"""Light dataclasses behave like the standard library's for gputui's classes, without its imports."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import gputui
from gputui.inventory import light_dataclasses
from table_tests import each_row

CLASSES = """
    from __future__ import annotations
    import functools
    from typing import ClassVar
    from {module} import dataclass, field

    made = []

    @dataclass(frozen=True)
    class Open:
        a: int
        b: str = "b"
        TABLE: ClassVar[int] = 3

    @dataclass(frozen=True, slots=True)
    class Slotted:
        a: int
        b: tuple[int, ...] = field(default=(), compare=False)
        c: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

        @property
        def double(self) -> int:
            return self.a * 2

        def __post_init__(self) -> None:
            made.append(self.a)

    @dataclass(frozen=True, slots=True)
    class Child(Slotted):
        d: float = field(default=0.5, metadata={{"unit": "s"}})
        a: int = 7

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        b: int = 1
        a: int

    @dataclass(slots=True)
    class Changing:
        a: int
        b: list[int] = field(default_factory=list)

    @dataclass(eq=False)
    class Itself:
        a: int = 0

    @dataclass(frozen=True)
    class Empty:
        pass

    @dataclass(frozen=True)
    class Written:
        a: int

        def __repr__(self) -> str:
            return "written"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    @dataclass(frozen=True)
    class Again(Open):
        b: str
        a: int = 5

    @dataclass(frozen=True)
    class AgainSlotted(Slotted):
        b: tuple[int, ...]

    @dataclass(frozen=True, slots=True)
    class SlottedBelow(Open):
        c: int = 1

    @dataclass(frozen=True)
    class Cached:
        a: int

        @functools.cached_property
        def double(self) -> int:
            made.append("double")
            return self.a * 2

"""


def _module(source: str) -> types.ModuleType:
    made = types.ModuleType(f"classes_of_{source.replace('.', '_')}")
    sys.modules[made.__name__] = made
    exec(textwrap.dedent(CLASSES.format(module=source)), made.__dict__)
    return made


STANDARD, LIGHT = _module("dataclasses"), _module("gputui.inventory.light_dataclasses")

USES = [
    "Open(1)",
    "Open(1, 'x') == Open(1, b='x')",
    "Open(1) == Open(2)",
    "Open(1) == 1",
    "hash(Open(1)) == hash(Open(1))",
    "Open.b, Open.TABLE",
    "Open.a",
    "Open()",
    "Open(1, 2, 3)",
    "Open(1, z=3)",
    "setattr(Open(1), 'a', 2)",
    "delattr(Open(1), 'a')",
    "setattr(Open(1), 'new', 2)",
    "Slotted(1)",
    "Slotted(1, (2,), {'x': 1}) == Slotted(1)",
    "{Slotted(1), Slotted(1, (3,))}",
    "Slotted(4).double",
    "setattr(Slotted(1), 'a', 2)",
    "hasattr(Slotted(1), '__dict__')",
    "Slotted(1).c is Slotted(1).c",
    "len([Slotted(9), *made]) - len(made)",
    "Child()",
    "Child(1, (2,), {}, 3.0)",
    "Child() == Slotted(7)",
    "hasattr(Child(), '__dict__'), Child.__mro__[1].__name__",
    "Named(a=2)",
    "Named(2)",
    "Named.__match_args__, Slotted.__match_args__",
    "Changing(1) == Changing(1)",
    "hash(Changing(1))",
    "vars(Itself(2))",
    "Itself() == Itself()",
    "Empty() == Empty(), Empty(), hash(Empty()) == hash(Empty())",
    "Written(1), Written(1) == 3, hash(Written(1))",
    "dataclasses.replace(Slotted(1), b=(5,))",
    "dataclasses.replace(Named(a=1), b=5)",
    "dataclasses.asdict(Child(1, (2,), {'x': 1}))",
    "[(f.name, f.default, f.kw_only, dict(f.metadata)) for f in dataclasses.fields(Child) if f.name != 'c']",
    "dataclasses.is_dataclass(Open), dataclasses.is_dataclass(Named(a=1))",
    "copy.copy(Slotted(1, (2,))), copy.deepcopy(Child(1, (2,))).b",
    "pickle.loads(pickle.dumps(Child(1, (2,)))), pickle.loads(pickle.dumps(Changing(3)))",
    "Again('x'), Again()",
    "AgainSlotted(1)",
    "AgainSlotted(1, (), {})",
    "SlottedBelow(1), SlottedBelow.__slots__, SlottedBelow.__dict__['a'].__class__",
    "hasattr(Open, '__getstate__') and Open.__getstate__ is getattr(object, '__getstate__', 0)",
    "[(each.double, vars(copy.copy(each)), vars(pickle.loads(pickle.dumps(each)))) for each in [Cached(3)]]",
]


def _outcome(module: types.ModuleType, use: str) -> str:
    known = {
        "copy": copy,
        "dataclasses": dataclasses,
        "pickle": pickle,
    }
    for each in vars(module).values():
        if inspect.isclass(each):
            each.__module__ = module.__name__
    try:
        return repr(eval(use, known, vars(module)))
    except Exception as error:  # noqa: BLE001 - what it raises is what is compared
        return f"{type(error).__name__}: {error}"


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace came with Python 3.13")
def test_copy_replace_makes_a_changed_copy() -> None:
    assert copy.replace(LIGHT.Slotted(1), b=(5,)) == LIGHT.Slotted(1, (5,))  # type: ignore[attr-defined]
    assert copy.replace(LIGHT.Named(a=1), a=2) == LIGHT.Named(a=2)  # type: ignore[attr-defined]


@each_row("use", USES)
def test_a_use_has_the_outcome_that_it_has_with_the_standard_library(use: str) -> None:
    assert _outcome(LIGHT, use) == _outcome(STANDARD, use)


def test_an_object_that_two_threads_make_first_is_made_by_both() -> None:
    @light_dataclasses.dataclass(frozen=True, slots=True)
    class Fresh:
        a: int
        b: int = 2

    begun = vars(Fresh)["__init__"]
    assert Fresh(1) == Fresh(1, 2)
    # Another thread has begun its first object before the one above was made.
    late = object.__new__(Fresh)
    begun(late, 3)
    assert late == Fresh(3)


def test_our_replace_and_fields_do_what_the_standard_ones_do() -> None:
    child = LIGHT.Child(1, (2,))
    assert light_dataclasses.replace(child, d=2.0) == dataclasses.replace(child, d=2.0)
    ours, standard = light_dataclasses.fields(child), dataclasses.fields(child)
    assert [(f.name, dict(f.metadata)) for f in ours] == [(f.name, dict(f.metadata)) for f in standard]
    with pytest.raises(TypeError):
        light_dataclasses.replace(child, unknown=1)


def test_a_frozen_class_has_slots_and_objects_that_never_change() -> None:
    @light_dataclasses.frozen
    class Plain:
        a: int
        b: int = 2

    @light_dataclasses.frozen(kw_only=True)
    class Named:
        a: int

    assert Plain(1) == Plain(1, 2) and Named(a=1) == Named(a=1)
    for made in (Plain(1), Named(a=1)):
        assert not hasattr(made, "__dict__")
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.a = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Named(1)  # type: ignore[call-arg, misc]


def test_a_pattern_matches_by_place_and_by_name() -> None:
    match LIGHT.Slotted(1, (2,)):
        case LIGHT.Slotted(a, (b,), c=c):
            assert (a, b, c) == (1, 2, {})
        case _:
            pytest.fail("no match")


def test_every_class_of_the_program_can_be_taken_apart_by_the_standard_library() -> None:
    classes = list(_light_classes())
    assert len(classes) > 150
    for cls in classes:
        ours, standard = light_dataclasses.fields(cls), dataclasses.fields(cls)
        assert [(f.name, f.compare, f.repr) for f in ours] == [(f.name, f.compare, f.repr) for f in standard]


def _light_classes() -> Iterator[type]:
    for found in pkgutil.walk_packages(gputui.__path__, "gputui."):
        # (The server for agents needs an extra.)
        if found.name.endswith(("__main__", ".mcp.server")) or ".scripts" in found.name:
            continue
        module = importlib.import_module(found.name)
        for each in vars(module).values():
            if inspect.isclass(each) and each.__module__ == found.name and "__light_fields__" in vars(each):
                yield each


def test_the_program_starts_without_what_it_spares() -> None:
    words = "import sys, gputui.cli.dispatch, gputui.tui.run; print('inspect' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


def test_no_module_of_the_program_takes_dataclass_from_the_standard_library() -> None:
    package = Path(gputui.__file__).parent
    lines = {
        f"{file.relative_to(package)}: {line}"
        for file in package.rglob("*.py")
        if file.name != "light_dataclasses.py" and "scripts" not in file.parts
        for line in file.read_text().splitlines()
        if line.strip().startswith(("from dataclasses", "import dataclasses")) and "asdict" not in line
    }
    assert not lines
