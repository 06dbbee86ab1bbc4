"""The changes that are made to a module: each mutant differs from the source in one place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one change: its place, its description, and the changed syntax tree."""

    line: int
    change: str
    tree: ast.Module


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    declared = {id(inner) for node in ast.walk(tree) for inner in _declarations(node)}
    places = [node for node in ast.walk(tree) if _is_code(node) and id(node) not in declared]
    places.sort(key=_line)
    numbered = {id(node): number for number, node in enumerate(ast.walk(tree))}
    for node in places:
        for text, change in _changes(node):
            changed = deepcopy(tree)
            twin = next(each for number, each in enumerate(ast.walk(changed)) if number == numbered[id(node)])
            change(twin)
            ast.fix_missing_locations(changed)
            yield Mutant(_line(node), f"{_shown(node)}: {text}", changed)


def _line(node: ast.AST) -> int:
    if isinstance(node, ast.comprehension):
        return node.iter.lineno
    return getattr(node, "lineno", 0)


def _declarations(node: ast.AST) -> Iterator[ast.AST]:
    """The declarations of a definition: its decorators and annotations, which do not affect its behaviour."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        for decorator in node.decorator_list:
            yield from ast.walk(decorator)
    if isinstance(node, ast.AnnAssign):
        yield from ast.walk(node.annotation)


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) < 70 else f"{text[:67]}…"


def _is_code(node: ast.AST) -> bool:
    """Whether a change of the node can affect the program: not in an annotation or a type alias."""
    return isinstance(
        node,
        ast.Compare
        | ast.BoolOp
        | ast.UnaryOp
        | ast.BinOp
        | ast.Constant
        | ast.If
        | ast.While
        | ast.IfExp
        | ast.Expr
        | ast.Continue
        | ast.Break
        | ast.Call
        | ast.comprehension,
    )


Change = Callable[[ast.AST], None]


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.Compare):
        for place, each in enumerate(node.ops):
            other = _COMPARE[type(each)]

            def compare(twin: ast.AST, place: int = place, other: type[ast.cmpop] = other) -> None:
                assert isinstance(twin, ast.Compare)
                twin.ops[place] = other()

            yield f"{type(each).__name__} → {other.__name__}", compare
    elif isinstance(node, ast.BoolOp):

        def junction(twin: ast.AST) -> None:
            assert isinstance(twin, ast.BoolOp)
            twin.op = ast.Or() if isinstance(twin.op, ast.And) else ast.And()

        yield "and ↔ or", junction
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _of_text(node):
        operator = _ARITHMETIC[type(node.op)]

        def arithmetic(twin: ast.AST, operator: type[ast.operator] = operator) -> None:
            assert isinstance(twin, ast.BinOp)
            twin.op = operator()

        yield f"{type(node.op).__name__} → {operator.__name__}", arithmetic
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):

        def constant(twin: ast.AST) -> None:
            assert isinstance(twin, ast.Constant) and isinstance(twin.value, int)
            twin.value = (not twin.value) if isinstance(twin.value, bool) else twin.value + 1

        yield "another value", constant
    elif isinstance(node, ast.If | ast.While | ast.IfExp):

        def negate(twin: ast.AST) -> None:
            assert isinstance(twin, ast.If | ast.While | ast.IfExp)
            twin.test = ast.UnaryOp(ast.Not(), twin.test)

        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield "condition negated", negate
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):

        def drop(twin: ast.AST) -> None:
            assert isinstance(twin, ast.Expr)
            twin.value = ast.Constant(None)

        yield "left out", drop
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        name = _CALLS[node.func.id]

        def call(twin: ast.AST, name: str = name) -> None:
            assert isinstance(twin, ast.Call) and isinstance(twin.func, ast.Name)
            twin.func.id = name
            if name == "list":
                twin.keywords = []

        yield f"{node.func.id} → {name}", call
    elif isinstance(node, ast.comprehension) and node.ifs:

        def unfiltered(twin: ast.AST) -> None:
            assert isinstance(twin, ast.comprehension)
            twin.ifs = []

        yield "not filtered", unfiltered


def _of_text(node: ast.BinOp) -> bool:
    """Whether the operands are types (`int | None`) or text: such a change only breaks the import."""
    operands = (node.left, node.right)
    if any(isinstance(each, ast.Constant) and isinstance(each.value, str | type(None)) for each in operands):
        return True
    return any(isinstance(each, ast.JoinedStr) for each in operands)
