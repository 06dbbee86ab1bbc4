"""Reads a shell script for the commands that it starts, with its variables expanded where they are known.

The text is parsed by tree-sitter's grammar of bash and followed as a shell would execute it, without starting
anything. Both branches of a condition that cannot be decided are followed; what differs behind them is not
known any more, and commands in them are not certain. Work is bounded, whatever the text.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING

from gputui.inventory.light_dataclasses import dataclass, field
from gputui.inventory.others_files import NotReadError, go_on

if TYPE_CHECKING:
    from tree_sitter import Language, Node

_MOST_STEPS = 20_000
"""Statements and words that are followed in all."""

_MOST_TURNS = 64
_DEEPEST = 60
"""Levels of statements, words, functions and files within each other."""

_LONGEST = 1 << 16
"""Characters of a variable."""

_MOST_BYTES = 1 << 17
"""Of all texts that are parsed: the script, what it reads with `source`, what it evaluates."""

_MOST_PIPES = 1000
"""In a text: where one with 8,000 is wrong at its end, the parser takes a second and 600 MB at one go."""

_LONGEST_PATTERN = 1000

_NO_PROGRAMS = frozenset(
    "echo printf mkdir test [ true false : wait sleep date ls rm cp mv cat ulimit trap chmod touch".split()  # noqa: SIM905
)
"""Commands that start no other program."""

_HANDED_ON = frozenset(("exec", "command", "builtin"))
_SET_BY_INPUT = frozenset(("read", "getopts", "mapfile", "readarray"))


@dataclass(frozen=True, slots=True)
class Value:
    """A text; where it is not `known`, as it is written in the script, and `filled` where it is not empty."""

    text: str
    known: bool = True
    filled: bool = False

    @property
    def empty(self) -> bool | None:
        """Whether it is the empty text; None where that is not known."""
        return not self.text if self.known else False if self.filled else None


@dataclass(frozen=True, slots=True)
class StartedCommand:
    """A program that a script starts.

    words      as the program gets them; what is not known stands there as it is written
    unknown    what is written where a word is not known
    variables  the environment variables that differ from the script's; None: not set, or not known
    not_known  the variables among them whose value is not known
    certain    whether it is started whenever the script gets as far
    directory  where it is started, as seen from where the script is; "" there, None where that is not known
    line       of the script, from 1
    """

    words: tuple[str, ...]
    unknown: tuple[str, ...]
    variables: Mapping[str, str | None]
    not_known: Mapping[str, str]
    certain: bool
    line: int
    directory: str | None = ""


@dataclass
class _State:
    """What a shell knows at one point of a script."""

    environ: Mapping[str, str]
    positional: list[Value]
    variables: ChainMap[str, Value | list[Value] | None] = field(default_factory=ChainMap)
    exported: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    exports_all: bool = False
    functions: dict[str, Node] = field(default_factory=dict)
    directory: str | None = ""

    def export(self, name: str) -> None:
        """Hand a variable on to what is started."""
        self.exported.add(name)
        self.hidden.discard(name)

    def split_off(self) -> _State:
        """A copy, for a branch or a subshell."""
        made = copy(self)
        # (Only what changes in it is new: a script may have thousands of branches and variables.)
        made.variables, made.exported = self.variables.new_child(), set(self.exported)
        made.hidden = set(self.hidden)
        made.functions, made.positional = dict(self.functions), list(self.positional)
        return made

    def join(self, branches: Sequence[_State], written: str) -> None:
        """Go on after branches when it is unknown which one was taken."""
        names = {name for branch in branches for name in branch.variables.maps[0]}
        for name in names:
            found = [branch.lookup(name) for branch in branches]
            same = all(each == found[0] for each in found)
            self.variables[name] = found[0] if same else Value(written, known=False)
        for branch in branches:
            self.exported |= branch.exported
            self.hidden |= branch.hidden
            self.functions.update(branch.functions)
        if branches:
            places = {branch.directory for branch in branches}
            self.directory = next(iter(places)) if len(places) == 1 else None
        if any(branch.positional != branches[0].positional for branch in branches):
            self.positional = [Value(written, known=False)]
        elif branches:
            self.positional = branches[0].positional

    def lookup(self, name: str) -> Value | list[Value] | None:
        """A variable's value; None where it is not set."""
        if name in self.variables:
            return self.variables[name]
        return Value(self.environ[name]) if name in self.environ else None


class _EndsError(Exception):
    """The script, or the function, ends here."""


class _BreakError(Exception):
    """The loop ends here."""


class _ContinueError(Exception):
    """This turn of the loop ends here."""


class _UndecidedError(Exception):
    """The loop, or this turn of it, perhaps ends here."""


class _TooMuchError(Exception):
    """The script is longer or deeper than is worth following."""


_MOST_READ = 4
_READ: dict[tuple[object, ...], tuple[tuple[StartedCommand, ...], int | None]] = {}
"""What was read last: the screen asks at every key. Not of scripts that read other files: they change."""


def read_shell(
    text: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    file: Callable[[str], str | None] = lambda path: None,
    not_known: Mapping[str, str] = {},
) -> tuple[tuple[StartedCommand, ...], int | None]:
    """The commands that a script starts, in their order; and the line at which it got too long or too deep to
    be followed any further, None where it was followed to its end.

    `arguments` are $1, $2, …; `environ` is what the script inherits; `file` gives the text of a file that it
    reads with `source`, None for one that cannot be read; `not_known` are variables that it inherits with a
    value that is not known yet, though it is not empty, and what stands for that.
    """
    if not _can_parse():
        return (), 1
    state = _State(environ, [Value(each) for each in arguments])
    key = (text, tuple(arguments), frozenset(environ.items()), frozenset(not_known.items()))
    if key in _READ:
        return _READ[key]
    state.variables.update({name: Value(written, False, filled=True) for name, written in not_known.items()})
    state.exported |= not_known.keys()
    reader = _Reader(file, not_known)
    stopped = None
    try:
        reader.follow_text(text, state, certain=True)
    except (_TooMuchError, NotReadError, RecursionError):
        stopped = reader.line
    except (_EndsError, _BreakError, _ContinueError, _UndecidedError):
        # What follows is not started, or only perhaps.
        stopped = None
    found = tuple(reader.commands), stopped
    if not reader.reads_files:
        if len(_READ) >= _MOST_READ:
            del _READ[next(iter(_READ))]
        _READ[key] = found
    return found


@lru_cache(maxsize=1)
def _can_parse() -> bool:
    """Whether the parser is installed: on a box that gputui was sent to it is not."""
    try:
        _language()
    except ImportError:
        return False
    return True


@lru_cache(maxsize=1)
def _language() -> Language:
    # 23 ms to import, only where a shell script is started.
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def _parsed(data: bytes) -> Node:
    """The root of a text without NULs. Raises NotReadError."""
    ended: list[BaseException] = []

    def is_over(*_: object) -> bool:
        try:
            go_on()
        except BaseException as error:  # noqa: BLE001 - Ctrl-C, too: the parser would go on
            ended.append(error)
        return bool(ended)

    from tree_sitter import Parser

    try:
        # (One each: a parser that two threads are inside of crashes.)
        return Parser(_language()).parse(lambda offset, _: data[offset:], progress_callback=is_over).root_node
    except (ValueError, SystemError, KeyboardInterrupt) as error:
        found: BaseException = ended[0] if ended else error
        # (Where Ctrl-C came between two callbacks, the next one fails "with an exception set": that one.)
        while isinstance(found, SystemError) and found.__cause__ is not None:
            found = found.__cause__
        raise found from None


class _Reader:
    """Follows one script, and collects its commands."""

    def __init__(self, file: Callable[[str], str | None], given: Collection[str]) -> None:
        self.given = given
        """Variables that the script inherits with a value that is not known."""
        self._file = file
        self._steps = self._depth = self._bytes = 0
        self.reads_files = False
        self.line = 1
        """Of the statement that is followed."""
        self._line: int | None = None
        """Of the outermost script, while a text that it reads is followed."""
        self._perhaps_ended = False
        self._tries = 0
        """Undecided branches that this is within."""
        self._loops: list[int] = []
        """For each loop that is being followed, in how many undecided branches it is itself."""
        self._calls: list[dict[str, Value | list[Value] | None]] = []
        """For each function that is being followed, what its local variables were before."""
        self.commands: list[StartedCommand] = []

    def follow_text(self, text: str, state: _State, certain: bool) -> None:
        """Follow another text in the same shell."""
        data = text.encode(errors="replace")
        self._bytes += len(data)
        if self._bytes > _MOST_BYTES or data.count(b"|") > _MOST_PIPES or b"\0" in data:
            # (At a NUL the parser never ends.)
            raise _TooMuchError
        self._follow(_parsed(data), state, certain)

    # Statements

    def _follow(self, node: Node, state: _State, certain: bool) -> None:
        self._steps += 1
        self._depth += 1
        self.line = self._line or node.start_point[0] + 1
        if self._steps > _MOST_STEPS or self._depth > _DEEPEST:
            raise _TooMuchError
        go_on()
        try:
            follow = getattr(self, f"_follow_{node.type}", None)
            if follow is not None:
                follow(node, state, certain)
            elif node.type in _SEVERAL:
                for child in node.named_children:
                    self._follow(child, state, certain)
            elif node.type == "ERROR":
                for child in node.named_children:
                    self._follow(child, state, False)
        finally:
            self._depth -= 1

    def _follow_variable_assignment(self, node: Node, state: _State, certain: bool) -> None:
        name, value = self._assigned(node, state)
        state.variables[name] = value
        if state.exports_all:
            state.export(name)

    def _follow_declaration_command(self, node: Node, state: _State, certain: bool) -> None:
        words = [_text(child) for child in node.named_children]
        kind = node.children[0].type
        exports = kind == "export" or any(re.fullmatch("-[a-z]*x[a-z]*", word) for word in words)
        integer = any(re.fullmatch("-[a-z]*i[a-z]*", word) for word in words)
        if kind != "export" and self._calls:
            before = self._calls[-1]
            names = [each.partition("=")[0].rstrip("+") for each in words if not each.startswith("-")]
            before.update({name: state.lookup(name) for name in names if name not in before})
        for child in node.named_children:
            if child.type == "variable_assignment":
                name, value = self._assigned(child, state)
                state.variables[name] = value
            elif child.type == "variable_name":
                name = _text(child)
            else:
                continue
            if exports:
                state.export(name)
            if integer and isinstance(value := state.variables.get(name), Value):
                # Its value is computed.
                state.variables[name] = Value(value.text, known=value.known and value.text.isdigit())

    def _follow_unset_command(self, node: Node, state: _State, certain: bool) -> None:
        for child in node.named_children:
            if child.type == "variable_name":
                state.variables[_text(child)] = None
                state.exported.discard(_text(child))
                state.hidden.add(_text(child))

    def _follow_function_definition(self, node: Node, state: _State, certain: bool) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            state.functions[_text(name)] = body

    def _follow_redirected_statement(self, node: Node, state: _State, certain: bool) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            self._follow(body, state, certain)

    def _follow_subshell(self, node: Node, state: _State, certain: bool) -> None:
        self._in_subshells(node.named_children, state.split_off(), certain)

    def _follow_pipeline(self, node: Node, state: _State, certain: bool) -> None:
        for child in node.named_children:
            self._in_subshells((child,), state.split_off(), certain)

    def _in_subshells(self, nodes: Sequence[Node], state: _State, certain: bool) -> None:
        try:
            for node in nodes:
                self._follow(node, state, certain)
        except (_EndsError, _BreakError, _ContinueError):
            return

    def _follow_list(self, node: Node, state: _State, certain: bool) -> None:
        """`a && b` and `a || b`: b is started where a succeeds, or fails."""
        first, second = node.named_children[0], node.named_children[-1]
        decided = self._decided(first, state)
        self._follow(first, state, certain)
        wants = not any(child.type == "||" for child in node.children)
        if decided is None and wants and not _is_test(first):
            # What is behind a program that fails is not started; nothing else is, either.
            self._follow(second, state, certain)
        elif decided is None:
            self._maybe((second,), state, _text(node))
        elif decided == wants:
            self._follow(second, state, certain)

    def _follow_if_statement(self, node: Node, state: _State, certain: bool) -> None:
        """The branch that is taken; all of them where that cannot be told."""
        branches = [*_branches(node)]
        undecided: list[_State] = []
        for condition, body in branches:
            decided: bool | None = True
            for each in condition:
                decided = self._decided(each, state)
                self._follow(each, state, certain and not undecided)
            if decided is False:
                continue
            if decided and not undecided:
                self._all(body, state, certain)
                return
            undecided.append(self._tried(body, state))
            if decided:
                break
        else:
            undecided.append(state.split_off())
        state.join(undecided, _text(node).splitlines()[0])

    def _follow_case_statement(self, node: Node, state: _State, certain: bool) -> None:
        items = [child for child in node.named_children if child.type == "case_item"]
        word_node = node.child_by_field_name("value")
        word = self._joined(word_node, state) if word_node is not None else Value("", known=False)
        bodies = []
        for item in items:
            patterns = list(item.children_by_field_name("value"))
            body = [child for child in item.named_children if child not in patterns]
            if word.known and any(_is_like(word.text, self._joined(each, state)) for each in patterns):
                self._all(body, state, certain)
                return
            bodies.append(body)
        if not word.known:
            tried = [self._tried(body, state) for body in bodies]
            state.join([*tried, state.split_off()], _text(node).splitlines()[0])

    def _follow_for_statement(self, node: Node, state: _State, certain: bool) -> None:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = [v for child in node.children_by_field_name("value") for v in self._fields(child, state)]
        if variable is None or body is None:
            return
        first = _text(node).splitlines()[0]
        if len(values) > _MOST_TURNS:
            raise _TooMuchError
        for value in values:
            state.variables[_text(variable)] = value
            if not self._turn(body, state, certain and value.known, first):
                return

    def _follow_while_statement(self, node: Node, state: _State, certain: bool) -> None:
        *condition, body = node.named_children
        first = _text(node).splitlines()[0]
        until = node.children[0].type == "until"
        for _ in range(_MOST_TURNS + 1):
            decided = self._decided(condition[0], state) if len(condition) == 1 else None
            if decided is None:
                self._maybe(node.named_children, state, first)
                return
            if decided == until or not self._turn(body, state, certain, first):
                return
        raise _TooMuchError

    def _follow_c_style_for_statement(self, node: Node, state: _State, certain: bool) -> None:
        """`for ((i=0; i<N; i++))`, as it is mostly written; the turns of any other form are unknown."""
        first, body = _text(node).splitlines()[0], node.child_by_field_name("body")
        match = _COUNTING.match(_text(node))
        start, end = (self._number(f"$(({match[each]}))", state) if match else None for each in (2, 4))
        if match is None or body is None or start is None or end is None:
            self._maybe(node.named_children[-1:], state, first)
            return
        end += match[3] == "<="
        if end - start > _MOST_TURNS:
            raise _TooMuchError
        for number in range(start, end):
            state.variables[match[1]] = Value(str(number))
            if not self._turn(body, state, certain, first):
                return

    def _turn(self, body: Node, state: _State, certain: bool, written: str) -> bool:
        """Follow one turn of a loop; whether there may be another."""
        self._loops.append(self._tries)
        undecided = False
        try:
            self._follow(body, state, certain)
        except _ContinueError:
            return True
        except _BreakError:
            return False
        except _UndecidedError:
            undecided = True
        finally:
            self._loops.pop()
        if undecided:
            # It is perhaps left here: the rest of the loop is not certain.
            self._maybe((body,), state, written)
        return not undecided

    def _maybe(self, nodes: Sequence[Node], state: _State, written: str) -> None:
        state.join([self._tried(nodes, state), state.split_off()], written)

    def _tried(self, nodes: Sequence[Node], state: _State) -> _State:
        """The state after statements that are perhaps executed."""
        tried, before = state.split_off(), len(self.commands)
        self._tries += 1
        try:
            self._all(nodes, tried, False)
        except _EndsError:
            # An end behind nothing but messages keeps a script from going on with what is missing; one behind
            # programs is another way through it.
            self._perhaps_ended |= len(self.commands) > before
        except (_BreakError, _ContinueError):
            return tried
        finally:
            self._tries -= 1
        return tried

    def _all(self, nodes: Sequence[Node], state: _State, certain: bool) -> None:
        for node in nodes:
            self._follow(node, state, certain)

    # Conditions

    def _decided(self, node: Node, state: _State) -> bool | None:
        """Whether a condition holds; None where that is not known."""
        if node.type == "negated_command":
            inner = self._decided(node.named_children[-1], state)
            return None if inner is None else not inner
        if node.type == "list":
            first, second = (self._decided(node.named_children[place], state) for place in (0, -1))
            either = any(child.type == "||" for child in node.children)
            if first is None:
                return None
            return first if first == either else second
        if node.type == "command" and _text(node) in ("true", ":", "false"):
            return _text(node) != "false"
        if node.type == "command" and _is_test(node):
            node = _parsed(f"[ {_text(node)[5:]} ]".encode()).named_children[0]
        if node.type != "test_command" or len(node.named_children) != 1:
            return None
        return self._holds(node.named_children[0], state)

    def _holds(self, test: Node, state: _State) -> bool | None:
        """The same of what stands between the brackets."""
        if test.type not in ("unary_expression", "binary_expression"):
            empty = self._joined(test, state).empty
            return None if empty is None else not empty
        if test.children[0].type == "!":
            inner = self._holds(test.named_children[-1], state)
            return None if inner is None else not inner
        operands = [
            self._joined(child, state) for child in test.named_children if child.type != "test_operator"
        ]
        operator = next((_text(child) for child in test.children if child.type in _OPERATORS), "")
        texts = [operand.text for operand in operands]
        if len(operands) == 1 and operator in ("-z", "-n", "-v"):
            empty = operands[0].empty
            if operator == "-v":
                value = state.lookup(texts[0])
                empty = value is None or (None if isinstance(value, Value) and value.empty is None else False)
            return None if empty is None else empty == (operator == "-z")
        if test.type != "binary_expression" or len(operands) != 2:
            return None
        known = all(operand.known for operand in operands)
        if operator in ("=", "==", "!="):
            unlike = {operand.empty for operand in operands} == {True, False}
            if not (known or unlike) or re.search(r"[*?\[]", texts[1]):
                return None
            return (known and texts[0] == texts[1]) == (operator != "!=")
        compare = _COMPARISONS.get(operator)
        if compare is None or not known or not all(re.fullmatch("-?[0-9]{1,9}", text) for text in texts):
            return None
        return compare(int(texts[0]), int(texts[1]))

    # Commands

    def _follow_command(self, node: Node, state: _State, certain: bool) -> None:
        prefix: dict[str, Value | list[Value] | None] = {}
        words: list[Value] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                name, value = self._assigned(child, state)
                prefix[name] = value
            elif child.type not in _REDIRECTS:
                words += self._fields(child, state)
        replaces = bool(words) and words[0].text == "exec"
        while words and words[0].text in _HANDED_ON:
            del words[0]
        if not words:
            state.variables.update(prefix)
            return
        name, arguments = words[0].text, words[1:]
        if name in _BUILTINS:
            before, self._line = self._line, self._line or node.start_point[0] + 1
            getattr(self, f"_{_BUILTINS[name]}_builtin")(arguments, state, certain)
            self._line = before
        elif name == "printf" and len(arguments) > 1 and arguments[0].text == "-v":
            state.variables[arguments[1].text] = Value(_text(node), known=False)
        elif name in _SET_BY_INPUT:
            self._read_input(node, words, state)
        elif name in state.functions:
            self._call(state.functions[name], arguments, state, certain)
        elif name not in _NO_PROGRAMS:
            self._start(node, words, prefix, state, certain)
        if replaces:
            raise _EndsError

    def _read_input(self, node: Node, words: Sequence[Value], state: _State) -> None:
        """`read`: of `IFS=, read -ra LIST <<< "$X"` what is read is known."""
        names = [word.text for word in words[1:] if not word.text.startswith("-")]
        if words[0].text == "getopts":
            names += ["OPTIND", "OPTARG"]
        for name in names:
            state.variables[name] = Value(_text(node).splitlines()[0], known=False)
        match = _READS_LIST.fullmatch(_text(node))
        source = state.lookup(match[2]) if match else None
        if match and isinstance(source, Value):
            entries = source.text.split(",") if source.known else [source.text]
            state.variables[match[1]] = [Value(entry, source.known) for entry in entries]

    def _start(
        self,
        node: Node,
        words: Sequence[Value],
        prefix: Mapping[str, Value | list[Value] | None],
        state: _State,
        certain: bool,
    ) -> None:
        inherited = state.environ.keys() - state.hidden
        exported = {n: v for n, v in state.variables.items() if n in state.exported or n in inherited}
        # (What is unset is not there, however it came.)
        exported |= {n: None for n in state.hidden - state.exported if n in state.environ or n in self.given}
        variables: dict[str, str | None] = {}
        not_known: dict[str, str] = {}
        for name, value in {**exported, **prefix}.items():
            # (An array is not exported.)
            known = isinstance(value, Value) and value.known
            variables[name] = value.text if isinstance(value, Value) and known else None
            if isinstance(value, Value) and not known:
                not_known[name] = value.text
        unknown = tuple(word.text for word in words if not word.known)
        texts = tuple(word.text for word in words)
        line = self._line or node.start_point[0] + 1
        certain = certain and not self._perhaps_ended
        found = StartedCommand(texts, unknown, variables, not_known, certain, line, state.directory)
        self.commands.append(found)

    def _call(self, body: Node, arguments: Sequence[Value], state: _State, certain: bool) -> None:
        before, state.positional = state.positional, list(arguments)
        self._calls.append({})
        try:
            self._follow(body, state, certain)
        except _EndsError:
            # `return`; and behind `exit` nothing more is started, which is less than what is said.
            return
        finally:
            state.positional = before
            state.variables.update(self._calls.pop())

    def _exit_builtin(self, arguments: Sequence[Value], state: _State, certain: bool) -> None:
        raise _EndsError

    _return_builtin = _exit_builtin

    def _break_builtin(self, arguments: Sequence[Value], state: _State, certain: bool) -> None:
        if self._loops and self._tries > self._loops[-1]:
            raise _UndecidedError
        raise _BreakError

    def _continue_builtin(self, arguments: Sequence[Value], state: _State, certain: bool) -> None:
        if self._loops and self._tries > self._loops[-1]:
            raise _UndecidedError
        raise _ContinueError

    def _cd_builtin(self, arguments: Sequence[Value], state: _State, certain: bool) -> None:
        places = [word for word in arguments if not word.text.startswith("-") or word.text == "-"]
        if len(places) != 1 or not places[0].known or places[0].text in ("-", "") or state.directory is None:
            state.directory = None
        else:
            state.directory = os.path.join(state.directory, os.path.expanduser(places[0].text))  # noqa: PTH111, PTH118

    _pushd_builtin = _popd_builtin = _cd_builtin

    def _shift_builtin(self, arguments: Sequence[Value], state: _State, certain: bool) -> None:
        if arguments and not arguments[0].known:
            state.positional = [Value(arguments[0].text, known=False)]
            return
        number = arguments[0].text if arguments else "1"
        del state.positional[: int(number) if number.isdigit() and len(number) < 6 else 0]

    def _set_builtin(self, arguments: Sequence[Value], state: _State, certain: bool) -> None:
        options = [word.text for word in arguments if re.fullmatch("[-+][a-z]+", word.text)]
        for option in options:
            if "a" in option and option not in ("-o", "+o"):
                state.exports_all = option[0] == "-"
        places = [place for place, word in enumerate(arguments) if word.text == "--"]
        if places:
            state.positional = list(arguments[places[0] + 1 :])

    def _source_builtin(self, arguments: Sequence[Value], state: _State, certain: bool) -> None:
        self.reads_files = True
        text = None
        if arguments and arguments[0].known and state.directory is not None:
            text = self._file(os.path.join(state.directory, arguments[0].text))  # noqa: PTH118
        if text is not None:
            self._within(text, state, certain)

    def _eval_builtin(self, arguments: Sequence[Value], state: _State, certain: bool) -> None:
        # What is not known stands there as it is written, and is not known when it is read again.
        self._within(" ".join(word.text for word in arguments), state, certain)

    def _within(self, text: str, state: _State, certain: bool) -> None:
        """Follow a text that has lines of its own."""
        self._depth += 10
        try:
            self.follow_text(text, state, certain)
        finally:
            self._depth -= 10

    # Words

    def _assigned(self, node: Node, state: _State) -> tuple[str, Value | list[Value] | None]:
        """The name and the value of an assignment."""
        name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = _text(name_node) if name_node is not None else ""
        value: Value | list[Value] | None = Value("")
        if value_node is not None and value_node.type == "array":
            value = [each for child in value_node.named_children for each in self._fields(child, state)]
        elif value_node is not None:
            value = self._joined(value_node, state)
        if any(child.type == "+=" for child in node.children):
            before = state.lookup(name)
            if isinstance(before, list):
                value = [*before, *(value if isinstance(value, list) else [value or Value("")])]
            elif isinstance(before, Value) and isinstance(value, Value):
                value = Value(before.text + value.text, before.known and value.known)
        texts = value if isinstance(value, list) else [value or Value("")]
        if sum(len(each.text) for each in texts) > _LONGEST:
            raise _TooMuchError
        return name, value

    def _joined(self, node: Node, state: _State, in_string: bool = False) -> Value:
        """A word where a shell does not split it: in an assignment, a test, quotes."""
        pieces = [*self._pieces(node, state, True, in_string)]
        known = all(each.known for each, _ in pieces)
        filled = not known and any(each.empty is False for each, _ in pieces)
        # (Several words, as "$@" has them, become one with spaces between them.)
        return Value("".join(" " * (how == "new") + each.text for each, how in pieces), known, filled)

    def _fields(self, node: Node, state: _State) -> list[Value]:
        """The words that a word becomes: none or several, where it has expansions without quotes."""
        fields: list[Value] = []
        is_open = False
        for value, separate in self._pieces(node, state, False):
            parts = [value.text]
            starts_new = False
            if separate == "split" and value.known:
                parts = value.text.split()
                starts_new = value.text[:1].isspace()
            if separate == "new":
                is_open = False
            for place, part in enumerate(parts):
                if is_open and not starts_new and place == 0:
                    fields[-1] = Value(fields[-1].text + part, fields[-1].known and value.known)
                else:
                    fields.append(Value(part, value.known))
                is_open = True
            if separate == "split" and value.text[-1:].isspace():
                is_open = False
        return fields

    def _pieces(
        self, node: Node, state: _State, quoted: bool, in_string: bool = False
    ) -> Iterator[tuple[Value, str]]:
        """The pieces of a word, and how each joins: "" to what is before it, "split" at its spaces too, "new"
        as a word of its own.

        quoted     whether it is not split
        in_string  whether it stands between double quotes, where a backslash stays before most characters
        """
        self._steps += 1
        self._depth += 1
        if self._steps > _MOST_STEPS or self._depth > _DEEPEST:
            raise _TooMuchError
        go_on()
        try:
            written = _text(node)
            how = "" if quoted else "split"
            if node.type in ("concatenation", "command_name"):
                for child in node.children:
                    yield from self._pieces(child, state, quoted, in_string)
            elif node.type == "string":
                # (Of no arguments, "$@" is no word at all.)
                if not _LIST_IN_QUOTES.fullmatch(written):
                    yield Value(""), ""
                yield from self._in_quotes(node, state)
            elif node.type == "raw_string":
                yield Value(written[1:-1]), ""
            elif node.type == "brace_expression" or (node.type == "word" and _BRACES.search(written)):
                yield Value(written, known=False), ""
            elif node.type in ("word", "number", "string_content", "variable_name", "extglob_pattern"):
                yield Value(_JOINED_LINES.sub("", written) if in_string else _ESCAPED.sub(r"\1", written)), ""
            elif node.type in ("simple_expansion", "expansion"):
                yield from self._expansion(node, state, quoted, in_string)
            elif node.type == "arithmetic_expansion":
                number = self._number(written, state)
                yield (Value(str(number)) if number is not None else Value(written, known=False)), how
            elif not node.is_named:
                yield Value(written), ""
            elif node.type == "command_substitution" and (match := _COUNTS_ENTRIES.fullmatch(written)):
                value = state.lookup(match[1])
                known = isinstance(value, Value) and value.known
                text = value.text if isinstance(value, Value) else ""
                yield (Value(str(text.count(",") + 1)) if known else Value(text or written, known=False)), how
            else:
                yield Value(written, known=False), ""
        finally:
            self._depth -= 1

    def _in_quotes(self, node: Node, state: _State) -> Iterator[tuple[Value, str]]:
        """What stands between double quotes; the grammar leaves spaces between two expansions out."""
        data, end = node.text or b"", 1
        for child in node.named_children:
            start = child.start_byte - node.start_byte
            if start > end:
                yield Value(data[end:start].decode(errors="replace")), ""
            if child.type == "string_content":
                text = re.sub(r'\\(["\\$`])', r"\1", _text(child)).replace("\\\n", "")
                yield Value(text), ""
            else:
                yield from self._pieces(child, state, True, True)
            end = child.end_byte - node.start_byte
        if len(data) - 1 > end:
            yield Value(data[end:-1].decode(errors="replace")), ""

    def _expansion(
        self, node: Node, state: _State, quoted: bool, in_string: bool
    ) -> Iterator[tuple[Value, str]]:
        """`$X`, `${X}`, `${X:-default}`, `$1`, `$@`, `${ARRAY[@]}`."""
        # In quotes the grammar takes the spaces before "$" into the expansion.
        spaces, written = _SPACES.fullmatch(_text(node)).groups()  # type: ignore[union-attr]
        if spaces and quoted:
            yield Value(spaces), ""
        if counted := _LENGTH.fullmatch(written):
            listed = state.lookup(counted[1])
            known = isinstance(listed, list) and all(each.known for each in listed)
            origin = listed[0].text if isinstance(listed, list) and listed else written
            length = len(listed) if isinstance(listed, list) else 0
            yield (Value(str(length)) if known else Value(origin, known=False)), ""
            return
        match = _EXPANSION.fullmatch(written)
        if match is None:
            yield Value(written, known=False), "" if quoted else "split"
            return
        name = match["plain"] or match["name"]
        value = self._parameter(name, match["index"], written, state)
        if self._takes_default(match["operator"] or "", value):
            behind = [
                child for child in node.named_children if child.start_byte > node.children[1].start_byte
            ]
            if (match["operator"] or "")[-1] == "=":
                texts = [self._joined(child, state, in_string) for child in behind]
                state.variables[name] = Value("".join(t.text for t in texts), all(t.known for t in texts))
            for child in behind:
                yield from self._pieces(child, state, quoted, in_string)
            return
        if (match["operator"] or "")[-1:] == "+":
            undecided = isinstance(value, Value) and value.empty is None
            value = Value(written, known=False) if undecided else Value("")
        if isinstance(value, list) and quoted and "*" in (name, match["index"]):
            value = Value(" ".join(each.text for each in value), all(each.known for each in value))
        if isinstance(value, list):
            for place, each in enumerate(value):
                yield each, "new" if place else ""
            return
        value = value or Value("")
        if not quoted and "IFS" in state.variables and value.text:
            # It is split at other places than spaces.
            value = Value(written, known=False)
        yield value, "" if quoted else "split"

    def _parameter(
        self, name: str, index: str | None, written: str, state: _State
    ) -> Value | list[Value] | None:
        """The value of `$name` or `${name[index]}`, None where it is not set."""
        if name in ("@", "*"):
            return list(state.positional)
        if name == "#":
            return Value(str(len(state.positional)), all(each.known for each in state.positional))
        if name.isdigit():
            place = int(name[:6])
            if not place:
                return Value(written, known=False)
            return state.positional[place - 1] if place <= len(state.positional) else None
        if not (name[0].isalpha() or name[0] == "_"):
            return Value(written, known=False)
        value = state.lookup(name)
        if index in ("@", "*"):
            return value if isinstance(value, list) else [] if value is None else [value]
        if not isinstance(value, list):
            return value
        number = self._number(f"$(({index or 0}))", state)
        if number is None:
            return Value(written, known=False)
        return value[number] if 0 <= number < len(value) else None

    def _takes_default(self, operator: str, value: Value | list[Value] | None) -> bool:
        """Whether the text after `:-`, `:=` or `:+` counts, and not the value."""
        if not operator or (isinstance(value, Value) and value.empty is None):
            return False
        empty = value is None or (operator[0] == ":" and isinstance(value, Value) and value.empty)
        return empty == (operator[-1] in "-=") and operator[-1] != "?"

    def _number(self, written: str, state: _State) -> int | None:
        """The value of `$((A * B))`; None where it is not known."""

        def replaced(match: re.Match[str]) -> str:
            value = self._parameter(match[1], None, "", state)
            if value is None:
                return "0"
            return value.text if isinstance(value, Value) and value.known else "?"

        def length(match: re.Match[str]) -> str:
            listed = state.lookup(match[1])
            return str(len(listed)) if isinstance(listed, list) and all(v.known for v in listed) else "?"

        text = _LENGTH.sub(length, written[3:-2])
        text = re.sub(r"\$?\{?([A-Za-z_]\w*|(?<=\$)[0-9#])\}?", replaced, text)
        if not re.fullmatch(r"[0-9+\-*/%() \t]{1,200}", text):
            return None
        try:
            return _integer(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            return None


_SEVERAL = (
    *("program", "compound_statement", "do_group", "variable_assignments"),
    *("negated_command", "else_clause"),
)
_REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")
_BUILTINS = {
    **{
        name: name
        for name in (
            "exit",
            "return",
            "shift",
            "set",
            "source",
            "eval",
            "break",
            "continue",
            "cd",
            "pushd",
            "popd",
        )
    },
    ".": "source",
}
_OPERATORS = ("test_operator", "=", "==", "!=", "<", ">")
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-lt": int.__lt__,
    "-le": int.__le__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
}
_LIST_IN_QUOTES = re.compile(r'"\$(@|\{@\}|\{\w+\[@\]\})"')
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_ESCAPED, _JOINED_LINES = re.compile(r"\\(.)"), re.compile(r"\\\n")
_SPACES = re.compile(r"(\s*)(.*)", re.DOTALL)
_LENGTH = re.compile(r"\$\{#(\w+)\[[@*]\]\}")
_COUNTS_ENTRIES = re.compile(
    r"""\$\(\s*echo\s+"?\$\{?(\w+)\}?"?\s*\|\s*"""
    r"""(?:tr\s+["']?,["']?\s+["']\\n["']\s*\|\s*wc\s+-[lw]|awk\s+-F\s*["']?,["']?\s+'\{\s*print\s+NF\s*;?\s*\}')\s*\)"""
)
"""How scripts count the entries of a list: `$(echo $LIST | tr ',' '\\n' | wc -l)`, and with awk."""
_READS_LIST = re.compile(r"""IFS=["']?,["']?\s+read\s+-r?a\s+(\w+)\s*<<<\s*"?\$\{?(\w+)\}?"?""")
_COUNTING = re.compile(
    r"for\s*\(\(\s*(\w+)\s*=\s*([^;]+?)\s*;\s*\1\s*(<=?)\s*([^;]+?)\s*;\s*(?:\1\+\+|\+\+\1|\1\s*\+=\s*1)\s*\)\)"
)
_EXPANSION = re.compile(
    r"\$(?P<plain>\w+|[@*#?$!-])"
    r"|\$\{(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#])(?:\[(?P<index>[^\]]*)\])?(?:(?P<operator>:?[-=+?]).*)?\}",
    re.DOTALL,
)


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _is_like(text: str, pattern: Value) -> bool:
    """Whether a word matches a pattern of `case`."""
    if len(pattern.text) > _LONGEST_PATTERN:
        raise _TooMuchError
    return pattern.known and fnmatch.fnmatchcase(text, pattern.text)


def _is_test(node: Node) -> bool:
    """Whether it fails without being a failure, as tests do."""
    if node.type in ("list", "negated_command"):
        return any(map(_is_test, node.named_children))
    return node.type == "test_command" or (node.type == "command" and _text(node).startswith("test "))


def _branches(node: Node) -> Iterator[tuple[list[Node], list[Node]]]:
    """The branches of an `if`: condition and body; that of `else` has no condition."""
    condition: list[Node] = []
    body: list[Node] = []
    in_body = False
    later: list[Node] = []
    for child in node.children:
        if child.type == "then":
            in_body = True
        elif child.type in ("elif_clause", "else_clause"):
            later.append(child)
        elif child.is_named:
            (body if in_body else condition).append(child)
    yield condition, body
    for clause in later:
        if clause.type == "else_clause":
            yield [], list(clause.named_children)
        else:
            yield from _branches(clause)


def _integer(node: ast.AST) -> int:
    """An arithmetic expression of numbers. Raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_integer(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _integer(node.left), _integer(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.FloorDiv | ast.Div):
            # A shell rounds towards zero.
            return int(left / right)
        if isinstance(node.op, ast.Mod) and left >= 0 < right:
            return left % right
    raise ValueError
