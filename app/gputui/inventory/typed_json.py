"""Reads JSON into dataclasses by the annotations of their fields, and writes it back.

All documents, records, answers of other programs and settings are parsed here. A `Record` describes how a
class is represented in JSON. Types and sizes are checked; an invalid value raises `DocumentError`, which
names its place ("devices[3].memory_used"). Unknown keys are ignored.

An annotation means: `int` a whole number from 0 on, `float` a number from 0 on, `str` a text that is valid
Unicode, `bool`, a Literal one of its words, `X | None` also null, `tuple[X, ...]` and `frozenset[X]` a list,
`tuple[X, Y]` a list of two, `dict[str, X]` an object, a dataclass an object, `object` any value. Other ranges
and forms are aliases with a `Form`: `Moment`, `Epoch`, `Celsius`, `Figure`, `Words`. They need not be
imported where they are used in annotations only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen, is_optional

MOST_TEXT = 128 * 1024
"""Linux's limit on one argument (MAX_ARG_STRLEN)."""
MOST_NUMBER = 2**63 - 1
MOST_WATTS = 1e9
MOST_ITEMS = 1_000_000
"""The most items of a list; the bytes of a document are bounded where it is read."""
LAST_MOMENT = 253_402_214_400
"""The last day of the year 9999, a date that can be written in every time zone."""

T = TypeVar("T")
Json = dict[str, Any]
"""An object of JSON."""


class DocumentError(ValueError):
    """The JSON is not what was expected; the message is one line that names the place and what is wrong."""

    def __init__(self, said: str, *steps: str | int) -> None:
        super().__init__(said)
        self.steps = [*steps]

    def within(self, *steps: str | int) -> DocumentError:
        """Return this error, with `steps` put before its place: for a value inside another one."""
        self.steps[:0] = steps
        return self

    def __str__(self) -> str:
        place = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in self.steps)
        return f"{printable(place.removeprefix('.'))}: {self.args[0]}" if place else self.args[0]


def wrong(value: object, want: str) -> DocumentError:
    """The error for a value, of JSON or TOML, that is not of the expected kind."""
    import json

    if isinstance(value, dict | list):
        # The contents are not shown, because they may be nested too deep.
        return DocumentError(f"expected {want}, found a list or an object")
    shown = json.dumps(value, default=str)
    return DocumentError(f"expected {want}, found {shown if len(shown) <= 40 else shown[:37] + '…'}")


@frozen
class Form:
    """How values of a type are read and written.

    read      raises DocumentError
    write     None where a value is written unchanged
    nullable  whether null is allowed; it is read as None, and `read` and `write` never see it
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None
    nullable: bool = False


def loads(data: bytes | str) -> Any:
    """The values of a JSON document. Raises DocumentError."""
    import json

    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"not JSON: {error}") from None


_MOST_OF_OTHERS, _LARGEST_OF_OTHERS = 100_000, 8 * 1024 * 1024
"""Values, and bytes as text: a list of 1,000 jobs has 50,000 values in 900,000 bytes."""


def loads_of_others(data: bytes, values: int = _MOST_OF_OTHERS, most: int = _LARGEST_OF_OTHERS) -> Any:
    """The values of a JSON document of another machine: `values` at most, of `most` bytes as text.

    Without a limit on their number, 32 MiB of "[]," take 850 MiB, and eleven seconds in which the screen
    answers no key. Raises DocumentError.
    """
    from gputui.inventory.others_files import NotReadError, parse_json

    try:
        return parse_json(data, most, values)
    except NotReadError as error:
        raise DocumentError(str(error)) from None
    except ValueError as error:
        # (Its line is counted within this document, which may be a line itself.)
        raise DocumentError(f"not JSON: {getattr(error, 'msg', error)}") from None


def within(value: Any, *keys: str) -> Any:
    """The value at this path of keys. Raises DocumentError."""
    for place, key in enumerate(keys):
        if value.__class__ is not dict:
            raise wrong(value, "an object").within(*keys[:place])
        if key not in value:
            raise DocumentError(f"'{key}' is missing", *keys[:place])
        value = value[key]
    return value


def check(kind: Any, right: Callable[[Any], object], want: str) -> Form:
    """The form of values of a type for which `right` is true; `want` says what is expected."""
    form = form_of(kind)

    def checked(value: Any) -> Any:
        found = form.read(value)
        if not right(found):
            raise wrong(value, want)
        return found

    return Form(checked, form.write)


def parsed(read: Callable[[str], T], want: str = "a text") -> Form:
    """The form of a text that `read` parses, which raises ValueError with a message.

    `want` says what is expected instead of a value that is not a text.
    """

    def read_text(value: Any) -> T:
        if not isinstance(value, str):
            raise wrong(value, want)
        try:
            return read(text(value))
        except DocumentError:
            raise
        except ValueError as error:
            raise DocumentError(str(error)) from None

    return Form(read_text)


def few(kind: Any, most: int) -> Any:
    """The type of a list of at most `most` values."""
    form = check(tuple[kind, ...], lambda found: len(found) <= most, f"at most {most} values")
    return Annotated[tuple[kind, ...], form]


def one_of(words: tuple[str, ...]) -> Form:
    """The form of one of these words."""

    def read(value: Any) -> str:
        if value.__class__ is not str or value not in words:
            raise wrong(value, " or ".join(words))
        return value

    return Form(read)


def whole(least: int = 0, most: int = MOST_NUMBER, want: str = "a whole number") -> Form:
    """The form of a whole number in this range."""

    def read(value: Any) -> int:
        if value.__class__ is not int or not least <= value <= most:
            raise wrong(value, want)
        return value

    return Form(read)


def number(least: float = 0, most: float = MOST_WATTS, want: str = "a number") -> Form:
    """The form of a number in this range."""

    def read(value: Any) -> float:
        if value.__class__ not in (int, float) or not least <= value <= most:
            raise wrong(value, want)
        return float(value)

    return Form(read)


def text(value: Any) -> str:
    """A text of valid Unicode."""
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise wrong(value, "a text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DocumentError("not valid Unicode") from None
    return value


def as_text(words: str | None) -> str | None:
    """Escape undecodable bytes, as in a command line or the name of a file: JSON can only have valid text."""
    return words if words is None or words.isascii() else words.encode(errors="backslashreplace").decode()


def _words(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT * 16:
        raise wrong(value, "a text")
    try:
        value.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise DocumentError("not valid Unicode") from None
    return value


def _yes(value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong(value, "true or false")
    return value


def _moment(value: Any) -> float:
    from datetime import datetime, timezone

    try:
        moment = datetime.fromisoformat(text(value).replace("Z", "+00:00"))
        # A time without an offset counts as UTC: otherwise it would depend on the reader's time zone.
        seconds = moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()
    except (ValueError, OverflowError):
        raise wrong(value, "a time (ISO 8601)") from None
    if not 0 <= seconds <= LAST_MOMENT:
        raise wrong(value, "a time from 1970 to 9999")
    return seconds


def iso(moment: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, with milliseconds."""
    from datetime import datetime, timezone

    return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="milliseconds")


Moment = Annotated[float, Form(_moment, iso)]
"""Seconds since the epoch; in JSON an ISO 8601 time."""
Epoch = Annotated[float, number(most=LAST_MOMENT)]
"""Seconds since the epoch, also in JSON."""
Celsius = Annotated[int, whole(-273)]
Figure = Annotated[float, number(-1e30, 1e30)]
"""A number that may be below zero."""
Signed = Annotated[int, whole(-MOST_NUMBER)]
"""A whole number that may be below zero."""
Large = Annotated[float, number(most=MOST_NUMBER)]
"""A large number, of bytes or joules."""
Positive = Annotated[int, whole(1)]
SignalNumber = Annotated[int, whole(1, 64)]
"""signal(7): Linux has 64 signals, other systems fewer."""
SystemNumber = Annotated[int, whole(most=4095)]
"""An exit status, or an error number (Linux: `MAX_ERRNO`), which the system takes again."""
Words = Annotated[str, Form(_words)]
"""A text that gputui wrote; command lines (2 MiB at most, execve(2)) and paths may have undecodable bytes."""
WordList = tuple[Words, ...]
"""Such texts: the words of a command, names, places."""


OrNull = Annotated[str | None, Form(text, lambda value: as_text(value) or None, nullable=True)]
"""A text; "" is written as null."""
SCHEMA = 1
"""The version of the documents that `--json` prints."""


def schema(version: int) -> Any:
    """The type of the key with the version of a document's format."""
    return Annotated[int, check(int, lambda value: value == version, f"schema {version} of this gputui")]


_SIMPLE = {
    int: whole(),
    float: number(),
    str: Form(text, as_text),
    bool: Form(_yes),
    object: Form(lambda value: value),
}
_KNOWN: dict[str, type] = {}
"""Classes with a record, by name: an annotation can use them without an import at run time."""
_RECORDS: dict[type, Record[Any]] = {}


def form_of(kind: Any) -> Form:
    """How values of a type are read and written."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if origin is Annotated:
        found: Form | Record[Any] = parts[1]
        if isinstance(found, Form):
            return found
        form = Form(found.read, found.written)
        return _list(form, tuple) if get_origin(parts[0]) is tuple else form
    if origin in (Union, UnionType):
        (one,) = (part for part in parts if part is not NoneType)
        form = form_of(one)
        return Form(form.read, form.write, nullable=True)
    if origin is Literal:
        return one_of(parts)
    if origin is frozenset or ... in parts:
        return _list(form_of(parts[0]), origin)
    if origin is tuple:
        return _pair([*map(form_of, parts)])
    if origin in (dict, Mapping):
        return _object(form_of(parts[1]))
    record = _RECORDS.get(kind) or Record(kind)
    return Form(record.read, record.write)


def _read_nullable(form: Form) -> Callable[[Any], Any]:
    read = form.read
    return (lambda value: None if value is None else read(value)) if form.nullable else read


def list_of(read: Callable[[Any], T], value: Any) -> tuple[T, ...]:
    """A list whose values `read` reads."""
    if value.__class__ is not list:
        raise wrong(value, "a list")
    if len(value) > MOST_ITEMS:
        raise DocumentError(f"{len(value)} entries, at most {MOST_ITEMS} are read")
    found: list[T] = []
    try:
        for each in value:
            found.append(read(each))
    except DocumentError as error:
        raise error.within(len(found)) from None
    return tuple(found)


def _list(form: Form, made: type) -> Form:
    read, write = _read_nullable(form), form.write
    if made is frozenset:
        return Form(
            lambda value: frozenset(list_of(read, value)),
            lambda value: sorted(map(write, value) if write else value),
        )
    return Form(lambda value: list_of(read, value), (lambda value: [*map(write, value)]) if write else list)


def _pair(forms: list[Form]) -> Form:
    reads = [*map(_read_nullable, forms)]

    def read(value: Any) -> tuple[Any, ...]:
        if value.__class__ is not list or len(value) != len(forms):
            raise wrong(value, f"a list of {len(forms)}")
        return tuple(
            inside(place, read, each) for place, (read, each) in enumerate(zip(reads, value, strict=True))
        )

    return Form(read, list)


def _object(form: Form) -> Form:
    read_one, write = _read_nullable(form), form.write

    def read(value: Any) -> Json:
        if value.__class__ is not dict:
            raise wrong(value, "an object")
        found, key = {}, ""
        try:
            # Without `inside`, which takes a third of the time of an index of 100,000 texts.
            for key, each in value.items():
                found[key] = read_one(each)
        except DocumentError as error:
            raise error.within(key) from None
        return found

    return Form(read, lambda value: {key: write(each) if write else each for key, each in value.items()})


def inside(step: str | int, read: Callable[[Any], T], value: Any) -> T:
    """A value that `read` reads; its errors name the place `step`."""
    try:
        return read(value)
    except DocumentError as error:
        raise error.within(step) from None


def _kind_of(cls: Any, path: str) -> Any:
    """The type of an attribute of a class: a field, a property, or one on the path to it."""
    name, _, rest = path.partition(".")
    fields = getattr(cls, "__light_fields__", {})
    if name in fields:
        said = fields[name].type
    else:
        made: Any = getattr(cls, name)
        said = (made.fget if isinstance(made, property) else made.func).__annotations__["return"]
    kind = eval(said, {**globals(), **_KNOWN, **vars(sys.modules[cls.__module__])})
    if not rest:
        return kind
    (owner,) = (part for part in get_args(kind) or (kind,) if part is not NoneType)
    found = _kind_of(owner, rest)
    return found if owner is kind else found | None


def _value_of(subject: Any, path: str) -> Any:
    """The value of an attribute; None where one on the way to it is None."""
    for name in path.split("."):
        subject = None if subject is None else getattr(subject, name)
    return subject


class Record(Generic[T]):
    """How a class is represented in JSON.

    keys     its fields that have a key, separated by spaces, in the order in which they are written; "" for
             all. "launch=line" is the field `line` with the key "launch"
    later    fields whose keys may be missing, because older versions do not write them; None: all fields
             with a default; "*": all
    details  fields whose keys may be missing, because they are written on demand only
    kinds    types by field, or by key, where the JSON has another type than the class
    """

    def __init__(
        self, cls: type[T] | None, keys: str = "", later: str | None = None, details: str = "", **kinds: Any
    ) -> None:
        self.cls, self._said, self._later, self._kinds = cls, keys.split(), later, kinds
        self._details = details.split()
        self._rows: list[tuple[str, str, Form, bool]] = []
        if cls is not None and not isinstance(self, View):
            _RECORDS.setdefault(cls, self)
            _KNOWN.setdefault(cls.__name__, cls)

    @property
    def rows(self) -> list[tuple[str, str, Form, bool]]:
        """Field, key, form, and whether the key is required. Made on first use."""
        if not self._rows:
            own = getattr(self.cls, "__light_fields__", {})
            later = (
                [name for name in own if is_optional(own[name])]
                if self._later is None
                else self._later.split()
            )
            optional = {*later, *self._details}
            names = self._said or [name for name in own if name not in self._details]
            # Few annotations differ, so each is evaluated once.
            forms: dict[Any, Form] = {}
            rows = []
            for said in (*names, *self._details):
                key, _, name = said.rpartition("=")
                kind = self._given(name, key) or (own[name].type if name in own else name)
                if kind not in forms:
                    forms[kind] = form_of(self.kind(name, key))
                rows.append((name, key or name, forms[kind], not {name, "*"} & optional))
            # Assigned at once, because another thread may use them as soon as they exist.
            self._rows = rows
        return self._rows

    def kind(self, name: str, key: str) -> Any:
        """The type of a field."""
        return self._given(name, key) or _kind_of(self.cls, name)

    def _given(self, name: str, key: str) -> Any:
        return self._kinds.get(name, self._kinds.get(key))

    @property
    def one(self) -> Any:
        """The type of a field of another record: an object of this one, or JSON-ready values of one."""
        return Annotated[self.cls, self]

    @property
    def list(self) -> Any:
        """The same of a list of such values."""
        kind: Any = self.cls
        return Annotated[tuple[kind, ...], self]

    @property
    def keys(self) -> set[str]:
        """All keys."""
        return {row[1] for row in self.rows}

    def facts(self, value: Any) -> Json:
        """The values of an object, by field. Raises DocumentError."""
        if value.__class__ is not dict:
            raise wrong(value, "an object")
        found: Json = {}
        key = ""
        try:
            for name, key, form, needed in self.rows:
                if key in value:
                    each = value[key]
                    found[name] = None if each is None and form.nullable else form.read(each)
                elif needed:
                    raise DocumentError(f"'{key}' is missing")
        except DocumentError as error:
            raise (error.within(key) if key in value else error) from None
        return found

    def read(self, value: Any) -> T:
        """The object that a JSON value describes. Raises DocumentError."""
        made: Any = self.cls
        return made(**self.facts(value))  # type: ignore[no-any-return]

    def written(self, value: Any) -> Any:
        """An object as JSON-ready values; values that are JSON-ready already stay as they are."""
        return value if isinstance(value, dict) else self.write(value)

    def write(self, subject: object = None, details: bool = False, /, **given: Any) -> Json:
        """An object as JSON-ready values; a value in `given` replaces that of the field."""
        found: Json = {}
        for name, key, form, _ in self.rows:
            if details or name not in self._details:
                if name in given:
                    value = given[name]
                else:
                    value = getattr(subject, name) if "." not in name else _value_of(subject, name)
                found[key] = value if value is None or form.write is None else form.write(value)
        return found


SCHEMA_KEY = schema(SCHEMA)


class View(Record[Any]):
    """How values are written in a document, with all of its keys. Such a document is never read.

    A key may also be a property of the class, or a path in it ("pid=command.pid"); or it has a type in
    `kinds`, and its value is given to `write`. `cls` is None where all values are given.
    """

    def __init__(self, cls: type | None, keys: str, **kinds: Any) -> None:
        super().__init__(cls, keys, "", **kinds)


class Document(View):
    """A document that `--json` prints: the version of its schema, and its keys."""

    def __init__(self, keys: str, cls: type | None = None, **kinds: Any) -> None:
        super().__init__(cls, f"schema {keys}", schema=SCHEMA_KEY, **kinds)

    def write(self, subject: object = None, details: bool = False, /, **given: Any) -> Json:
        return super().write(subject, details, schema=SCHEMA, **given)
