"""Reads what a Python script says of devices: the list that it sets for itself, the devices that it names.

Its syntax tree is searched; nothing is executed and nothing imported. Values that are written out count, and
names that are set to such a value once in the file. What the script does only where it inherits no list does
not count: a launch sets one. Sources: torch.device and the module of the devices in PyTorch's documentation,
tf.config.list_physical_devices, jax.devices, `devices` of Lightning's Trainer.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterator
from functools import lru_cache

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.others_files import NotReadError, go_on
from gputui.launching.script_contents.python_reading import DeviceUse, OwnList, Place, PythonReading

_OF_TORCH = ("set_device", "device", "get_device_name", "get_device_properties", "mem_get_info")
"""Functions of torch's module for the devices whose first argument is an index."""

_LISTING = ("devices", "local_devices", "list_physical_devices", "list_logical_devices")
_TRAINERS = ("Trainer", "Fabric")
_OF_TRANSFORMERS = ("Trainer", "TrainingArguments")
"""How the names of its Trainer, and of its arguments, end."""

_WRITTEN = 80
_MOST_WORDS = 25_000
"""Names, numbers and signs of a script that is parsed: a tree of these takes 30 MiB at most."""
_MOST_BRACES = 1 << 28
"""Braces of a script times its bytes: before 3.12 the time of a format string grows with that."""
_WORD = re.compile(rb"\w+|[^\w\s]|\n\s*")

_MOST_INDEX = 1 << 16

Literal = str | int | tuple[int, ...] | None


def read_python(
    name: str, text: str, whole: bool, variables: tuple[str, ...], device_type: str
) -> PythonReading:
    """What a Python script says of the devices of one vendor: see `read_python_for`."""
    return read_python_for(name, text, whole, ((variables, device_type),))[0]


@lru_cache(maxsize=4)
def read_python_for(
    name: str, text: str, whole: bool, vendors: tuple[tuple[tuple[str, ...], str], ...]
) -> tuple[PythonReading, ...]:
    """What a Python script says of devices, for each vendor.

    name     of the script; `text` is its first 128 KiB, `whole` whether that is all of it
    vendors  of each the variables that list the visible devices, and torch's word for a device
             (`Vendor.device_type`)
    """
    words = {word for variables, device_type in vendors for word in (*variables, device_type)}
    words.update(("gpu", "GPU", "devices", "device_ids", *_OF_TRANSFORMERS))
    if not any(word in text for word in words):
        return (PythonReading(),) * len(vendors)
    unread = "" if whole else "it has NUL bytes, or more than 128 KiB"
    try:
        tree = syntax_tree(text) if whole else None
        if tree is not None:
            return tuple(_Reader(name, text, *each).reading(tree) for each in vendors)
    except RecursionError:
        unread = "it is nested too deep"
    except NotReadError as error:
        unread = str(error)
    return tuple(replace(_by_lines(name, text, variables), unread=unread) for variables, _ in vendors)


def syntax_tree(text: str) -> ast.Module | None:
    """The tree of a script; None where it is no Python of this version, or nested too deep. Raises
    NotReadError where it is too long: the parser cannot be interrupted."""
    go_on()
    data = text.encode("utf-8", "surrogateescape")
    if sum(1 for _ in _WORD.finditer(data)) > _MOST_WORDS or data.count(b"{") * len(data) > _MOST_BRACES:
        raise NotReadError("it is too long")
    try:
        with warnings.catch_warnings():
            # It warns of escape sequences in other people's scripts.
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def _by_lines(script: str, text: str, variables: Collection[str]) -> PythonReading:
    """Lines that set the list by themselves, of what does not parse: Python 2, a script that is cut off."""
    names = "|".join(map(re.escape, variables))
    line = re.compile(
        rf"^[ \t]*os\.environ\[\s*['\"](?:{names})['\"]\s*\]\s*=\s*(?:'([^'\\\n]*)'|\"([^\"\\\n]*)\")",
        re.MULTILINE,
    )
    found = [] if not names else list(line.finditer(text))[:100]
    lists = [
        OwnList(
            Place(script, text.count("\n", 0, each.end()) + 1),
            each[1] if each[1] is not None else each[2],
            False,
        )
        for each in found
    ]
    return PythonReading(tuple(lists))


class _Reader:
    """Collects what one syntax tree says."""

    def __init__(self, script: str, text: str, variables: Collection[str], device_type: str) -> None:
        self._script = script
        self._lines = text.split("\n")
        self._variables = variables
        self._type = device_type
        self._named = re.compile(rf"(?:{re.escape(device_type)}:|/?(?:device:)?(?:GPU|gpu):)([0-9]{{1,4}})")
        self._literals: dict[str, Literal] = {}
        self._listed: set[str] = set()
        self._lists: list[OwnList] = []
        self._uses: list[DeviceUse] = []
        self._unfollowed: list[Place] = []
        self._inherited: set[str] = set()
        self._trains = False

    def reading(self, tree: ast.Module) -> PythonReading:
        self._names(tree)
        for node, certain in self._walk(tree):
            if isinstance(node, ast.ImportFrom):
                of_transformers = (node.module or "").partition(".")[0] == "transformers"
                self._trains |= of_transformers and any(
                    each.name.endswith(_OF_TRANSFORMERS) for each in node.names
                )
            elif isinstance(node, ast.Attribute):
                self._trains |= (
                    node.attr.endswith(_OF_TRANSFORMERS) and _last_name(node.value) == "transformers"
                )
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                self._assignment(node, certain)
            elif isinstance(node, ast.AugAssign):
                if isinstance(node.op, ast.BitOr) and self._is_environ(node.target):
                    self._mapping(node.value, node, certain)
            elif isinstance(node, ast.Delete):
                for target in node.targets:
                    if self._variable_of(target):
                        self._list(node, None, certain)
            elif isinstance(node, ast.Call):
                self._call(node, certain)
            elif isinstance(node, ast.Subscript):
                self._subscript(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = self._named.fullmatch(node.value)
                if found:
                    self._use(node, int(found[1]) + 1)
        return PythonReading(tuple(self._lists), tuple(self._uses), tuple(self._unfollowed), self._trains)

    def _names(self, tree: ast.Module) -> None:
        """Names that are set once in the whole file, to a value that is written out or a list of devices."""
        counts: dict[str, int] = {}
        values: dict[str, ast.expr] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                counts[node.id] = counts.get(node.id, 0) + 1
            elif isinstance(node, ast.arg):
                counts[node.arg] = counts.get(node.arg, 0) + 1
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
                if isinstance(target, ast.Name):
                    values[target.id] = node.value
        for name, value in values.items():
            if counts.get(name) == 1:
                literal = self._literal(value)
                if literal is not None:
                    self._literals[name] = literal
                if self._is_listing(value):
                    self._listed.add(name)
                if self._is_inherited(value):
                    self._inherited.add(name)

    # Values.

    def _literal(self, node: ast.expr | None) -> Literal:
        if isinstance(node, ast.Constant):
            value = node.value
            if isinstance(value, str):
                return value
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST_INDEX:
                return value
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = node.operand.value if isinstance(node.operand, ast.Constant) else None
            if isinstance(inner, int) and not isinstance(inner, bool) and inner <= _MOST_INDEX:
                return -inner
        elif isinstance(node, ast.Name):
            return self._literals.get(node.id)
        elif isinstance(node, (ast.List, ast.Tuple)):
            values = [self._literal(each) for each in node.elts[:1024]]
            if all(isinstance(each, int) for each in values):
                return tuple(each for each in values if isinstance(each, int))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._called(node)
        return None

    def _called(self, node: ast.Call) -> Literal:
        """`str(3)`, `range(4)`, `list(range(4))`."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if node.keywords or len(node.args) != 1 or (isinstance(node.args[0], ast.Call) and name != "list"):
            return None
        value = self._literal(node.args[0])
        if name == "str" and isinstance(value, (int, str)):
            return str(value)
        if name == "range" and isinstance(value, int) and 0 <= value <= 1024:
            return tuple(range(value))
        return value if name == "list" and isinstance(value, tuple) else None

    def _is_environ(self, node: ast.expr) -> bool:
        return _last_name(node) == "environ"

    def _variable_of(self, node: ast.expr) -> str | None:
        """The variable of `os.environ["NAME"]`, where it is one of ours."""
        if isinstance(node, ast.Subscript) and self._is_environ(node.value):
            return self._ours(node.slice)
        return None

    def _ours(self, node: ast.expr) -> str | None:
        name = self._literal(node)
        return name if isinstance(name, str) and name in self._variables else None

    def _is_listing(self, node: ast.expr) -> bool:
        """Whether an expression is the list of all devices of TensorFlow or JAX."""
        if not isinstance(node, ast.Call):
            return False
        name = _last_name(node.func)
        if name not in _LISTING:
            return False
        kind = self._literal(node.args[0]) if node.args else None
        kinds = [
            self._literal(each.value) for each in node.keywords if each.arg in ("device_type", "backend")
        ]
        kind = kinds[0] if kinds else kind
        if isinstance(kind, str):
            return kind.lower() in ("gpu", self._type)
        # Without a word it is JAX's, and the default backend's; TensorFlow's has CPUs among them.
        return name == "devices" or name == "local_devices"

    # What is found.

    def _place(self, node: ast.AST) -> Place:
        return Place(self._script, getattr(node, "lineno", 1))

    def _written(self, node: ast.expr | ast.stmt) -> str:
        line = self._lines[node.lineno - 1 : node.lineno]
        return line[0].strip()[:_WRITTEN] if line else ""

    def _list(self, node: ast.expr | ast.stmt, text: str | None, certain: bool) -> None:
        self._lists.append(OwnList(self._place(node), text, certain))

    def _use(self, node: ast.expr | ast.stmt, needs: int) -> None:
        if needs > 0 and len(self._uses) < 1000:
            self._uses.append(DeviceUse(self._place(node), self._written(node), needs))

    def _value(self, value: ast.expr, node: ast.expr | ast.stmt, certain: bool) -> None:
        """A list that is set, or one that cannot be told."""
        text = self._literal(value)
        if isinstance(text, str):
            self._list(node, text, certain)
        elif not self._is_inherited(value) and len(self._unfollowed) < 100:
            self._unfollowed.append(self._place(node))

    # The list that is inherited: it is there.

    def _is_inherited(self, value: ast.expr) -> bool:
        """Whether a value is the list that the script inherits: `os.environ.get(NAME, "0")`."""
        if isinstance(value, ast.Name):
            return value.id in self._inherited
        if isinstance(value, ast.BoolOp):
            return isinstance(value.op, ast.Or) and self._is_inherited(value.values[0])
        if isinstance(value, ast.IfExp):
            holds = self._holds(value.test)
            return holds is not None and self._is_inherited(value.body if holds else value.orelse)
        if not isinstance(value, ast.Call):
            return self._variable_of(value) is not None
        name = _last_name(value.func)
        owner = value.func.value if isinstance(value.func, ast.Attribute) else None
        of_environ = name == "getenv" or (name == "get" and owner is not None and self._is_environ(owner))
        return of_environ and bool(value.args) and self._ours(value.args[0]) is not None

    def _holds(self, test: ast.expr) -> bool | None:
        """Whether a condition holds in a script that is started with a list of devices; None: not known."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            holds = self._holds(test.operand)
            return None if holds is None else not holds
        if isinstance(test, ast.BoolOp):
            each = {self._holds(value) for value in test.values}
            either = isinstance(test.op, ast.Or)
            return either if either in each else None if None in each else not either
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return True if self._is_inherited(test) else None
        left, operator, right = test.left, test.ops[0], test.comparators[0]
        wants = isinstance(operator, (ast.In, ast.Eq, ast.Is))
        if isinstance(operator, (ast.In, ast.NotIn)):
            keys = right.func if isinstance(right, ast.Call) and _last_name(right.func) == "keys" else None
            environ = keys.value if isinstance(keys, ast.Attribute) else right
            return wants if self._ours(left) and self._is_environ(environ) else None
        if isinstance(left, ast.Name) and left.id == "__name__":
            return wants if self._literal(right) == "__main__" else None
        empty = isinstance(right, ast.Constant) and right.value in (None, "")
        return not wants if empty and self._is_inherited(left) else None

    def _walk(self, tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
        """All nodes that may be executed, each with whether it is whenever the script is."""
        waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
        while waiting:
            go_on()
            node, certain = waiting.pop()
            yield node, certain
            holds = self._holds(node.test) if isinstance(node, (ast.If, ast.IfExp)) else None
            inside: list[tuple[ast.AST, bool]] = []
            for name, value in ast.iter_fields(node):
                if holds is not None and name == ("orelse" if holds else "body"):
                    continue
                inner = certain and (holds is not None or not _may_be_left_out(node, name))
                inside += [(each, inner) for each in (value if isinstance(value, list) else (value,))]
            waiting += [each for each in reversed(inside) if isinstance(each[0], ast.AST)]

    def _assignment(self, node: ast.Assign | ast.AnnAssign, certain: bool) -> None:
        if node.value is None:
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if self._variable_of(target):
                self._value(node.value, node, certain)

    def _mapping(self, value: ast.expr, node: ast.expr | ast.stmt, certain: bool) -> None:
        """`{NAME: …}` and `dict(NAME=…)`."""
        if isinstance(value, ast.Dict):
            for key, each in zip(value.keys, value.values, strict=True):
                if key is not None and self._ours(key):
                    self._value(each, node, certain)
        elif isinstance(value, ast.Call) and _last_name(value.func) == "dict":
            self._keywords(value, node, certain)

    def _keywords(self, call: ast.Call, node: ast.expr | ast.stmt, certain: bool) -> None:
        for keyword in call.keywords:
            if keyword.arg in self._variables and keyword.arg is not None:
                self._value(keyword.value, node, certain)

    def _call(self, node: ast.Call, certain: bool) -> None:
        name = _last_name(node.func)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        first = node.args[0] if node.args else None
        if owner is not None and self._is_environ(owner):
            self._environ_call(name, node, certain)
        elif name in ("putenv", "setenv") and len(node.args) == 2 and self._ours(node.args[0]):
            self._value(node.args[1], node, certain)
        elif name == "unsetenv" and first is not None and self._ours(first):
            self._list(node, None, certain)
        elif name == self._type and owner is not None:
            # tensor.TYPE(3)
            self._index(first, node)
        elif name == "device" and len(node.args) == 2 and self._literal(first) == self._type:
            self._index(node.args[1], node)
        elif name in _OF_TORCH and owner is not None and _last_name(owner) == self._type:
            self._index(first, node)
        elif name in _TRAINERS:
            self._trainer(node)
        for keyword in node.keywords:
            if keyword.arg == "device_ids" or (keyword.arg == "index" and name == "device"):
                indices = self._literal(keyword.value)
                if isinstance(indices, (tuple, int)):
                    self._use(node, _highest(indices) + 1)

    def _index(self, argument: ast.expr | None, node: ast.Call | ast.Subscript) -> None:
        index = self._literal(argument)
        if isinstance(index, int):
            self._use(node, index + 1)

    def _environ_call(self, name: str, node: ast.Call, certain: bool) -> None:
        """A method of os.environ."""
        if name == "update":
            for argument in node.args:
                self._mapping(argument, node, certain)
            self._keywords(node, node, certain)
        elif name == "clear" or (name == "pop" and node.args and self._ours(node.args[0])):
            self._list(node, None, certain)
        elif name == "__setitem__" and len(node.args) == 2 and self._ours(node.args[0]):
            self._value(node.args[1], node, certain)

    def _trainer(self, node: ast.Call) -> None:
        """Lightning's `devices`: a number, a list of indices, or either in a text."""
        keywords = {each.arg: self._literal(each.value) for each in node.keywords}
        if keywords.get("accelerator", "auto") not in ("auto", "gpu", self._type, None):
            return
        for name in ("devices", "gpus"):
            value = keywords.get(name)
            if isinstance(value, str):
                if re.fullmatch(r"\s*[0-9]{1,4}\s*", value):
                    value = int(value)
                elif re.fullmatch(r"\s*[0-9]{1,4}\s*(,\s*[0-9]{1,4}\s*)*,?\s*", value):
                    value = tuple(int(each) for each in value.split(",") if each.strip())
            if isinstance(value, (tuple, int)):
                self._use(node, _highest(value) + 1 if isinstance(value, tuple) else value)

    def _subscript(self, node: ast.Subscript) -> None:
        """`gpus[3]`, `jax.devices()[3]`."""
        listed = self._is_listing(node.value) or (
            isinstance(node.value, ast.Name) and node.value.id in self._listed
        )
        if listed:
            self._index(node.slice, node)


def _highest(indices: int | tuple[int, ...]) -> int:
    return indices if isinstance(indices, int) else max(indices, default=-1)


def _last_name(node: ast.AST | None) -> str:
    """The name behind the last dot: "environ" of os.environ."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _may_be_left_out(node: ast.AST, field: str) -> bool:
    """Whether what stands in a field of a node is perhaps not executed."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return field in ("body", "orelse")
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return field in ("body", "args")
    if (
        isinstance(node, (ast.If, ast.While, ast.IfExp, ast.BoolOp, ast.Try))
        or type(node).__name__ == "TryStar"
    ):
        return field not in ("test", "finalbody")
    if isinstance(node, ast.Call):
        # A default of an option is not what the user gives.
        return _last_name(node.func) == "add_argument"
    return isinstance(
        node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Match, ast.Assert)
    )
