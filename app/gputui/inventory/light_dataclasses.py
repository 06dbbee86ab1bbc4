"""dataclass, field, fields and replace with the standard library's interfaces, for a quick start.

The module `dataclasses` imports `inspect` (6 ms) and compiles six functions for each class (docs/speed.md).
Here all classes share their functions, and `__init__` is compiled when the first object of its class is made.
Type checkers see the originals, and refuse what the standard library refuses when a class is made.

It supports the features that gputui's classes use: frozen, slots, kw_only and eq; default, default_factory,
repr, compare and metadata; inheritance from each other, `__post_init__`, `ClassVar`, copying and pickling.
`dataclasses.fields`, `replace`, `asdict` and `is_dataclass` work for these classes too. `frozen` is
`dataclass(frozen=True, slots=True)`, which nearly all of gputui's values are.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

__all__ = ["dataclass", "field", "fields", "frozen", "is_optional", "replace"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import Field, dataclass, field, fields, replace
    from typing import Any, TypeVar, overload

    from typing_extensions import dataclass_transform

    _T = TypeVar("_T")

    @overload
    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    def frozen(cls: type[_T], /) -> type[_T]: ...
    @overload
    def frozen(*, kw_only: bool = False, eq: bool = True) -> Callable[[type[_T]], type[_T]]: ...
    def frozen(cls: Any = None, /, **more: bool) -> Any:
        """A dataclass with slots whose objects never change."""

    def is_optional(field: Field[Any]) -> bool:
        """Whether an object can be made without a value for this field."""
else:
    _MISSING = object()

    class _Field:
        """The declaration of one field of a class."""

        __slots__ = ("compare", "default", "default_factory", "kw_only", "metadata", "name", "repr", "type")

        def __init__(self, default, default_factory, repr, compare, metadata):
            self.default, self.default_factory = default, default_factory
            self.repr, self.compare, self.metadata = repr, compare, metadata or {}
            self.name, self.type, self.kw_only = "", "", False

        def standard(self):
            """The same field as an object of `dataclasses`."""
            import dataclasses

            said = {name: getattr(self, name) for name in ("compare", "kw_only", "metadata", "repr")}
            for name in ("default", "default_factory"):
                if getattr(self, name) is not _MISSING:
                    said[name] = getattr(self, name)
            return dataclasses.field(**said)

    class _StandardFields:
        """`__dataclass_fields__`, made by the standard library on demand."""

        def __get__(self, _, cls):
            import dataclasses

            described = [(each.name, each.type, each.standard()) for each in cls.__light_fields__.values()]
            cls.__dataclass_fields__ = dataclasses.make_dataclass(
                cls.__name__, described
            ).__dataclass_fields__
            return cls.__dataclass_fields__

    def field(*, default=_MISSING, default_factory=_MISSING, repr=True, compare=True, metadata=None):
        return _Field(default, default_factory, repr, compare, metadata)

    def fields(class_or_object, /):
        return tuple(class_or_object.__light_fields__.values())

    def is_optional(field):
        return field.default is not _MISSING or field.default_factory is not _MISSING

    def replace(obj, /, **changes):
        # Classes of Textual's have `__dataclass_fields__` only.
        for name in getattr(obj, "__light_fields__", None) or obj.__dataclass_fields__:
            if name not in changes:
                changes[name] = getattr(obj, name)
        return obj.__class__(**changes)

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True):
        def decorate(cls):
            inherited = {}
            for base in cls.__mro__[:0:-1]:
                inherited.update(base.__dict__.get("__light_fields__", {}))
            own = _own_fields(cls, kw_only)
            members = _members({**inherited, **own}, frozen, eq)
            # Methods that the class defines itself stay.
            members = {name: each for name, each in members.items() if cls.__dict__.get(name) is None}
            if slots:
                if frozen:
                    members["__reduce__"] = _reduce
                return _with_slots(cls, members)
            for name, each in own.items():
                if isinstance(cls.__dict__.get(name), _Field):
                    delattr(cls, name)
                if each.default is not _MISSING:
                    setattr(cls, name, each.default)
            for name, member in members.items():
                setattr(cls, name, member)
            return cls

        return decorate if cls is None else decorate(cls)

    def frozen(cls=None, /, **more):
        return dataclass(cls, frozen=True, slots=True, **more)

    _Slot = type(_Field.name)

    def _own_fields(cls, kw_only):
        found = {}
        for name, annotation in cls.__annotations__.items():
            if "ClassVar" in str(annotation):
                continue
            # A base class's default is an attribute of this class too, unless the base class has slots.
            said = getattr(cls, name, _MISSING)
            if said.__class__ is not _Field:
                said = _Field(_MISSING if said.__class__ is _Slot else said, _MISSING, True, True, None)
            said.name, said.type, said.kw_only = name, annotation, kw_only
            found[name] = said
        return found

    def _members(fields, frozen, eq):
        compared = [name for name, each in fields.items() if each.compare]
        shown = [name for name, each in fields.items() if each.repr]
        values = (
            attrgetter(*compared) if len(compared) > 1 else lambda self: [getattr(self, n) for n in compared]
        )

        def __init__(self, *args, **kwargs):
            owner = next(
                each for each in type(self).__mro__ if each.__dict__.get("__light_fields__") is fields
            )
            owner.__init__ = _compiled(owner, frozen)
            owner.__init__(self, *args, **kwargs)

        def __repr__(self):
            inside = ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])
            return f"{self.__class__.__qualname__}({inside})"

        def __eq__(self, other):
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            return hash(tuple(values(self)))

        members = {
            "__light_fields__": fields,
            "__dataclass_fields__": _StandardFields(),
            "__match_args__": tuple([name for name, each in fields.items() if not each.kw_only]),
            "__init__": __init__,
            "__repr__": __repr__,
            "__replace__": replace,
        }
        if eq:
            members |= {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}
        if frozen:
            members |= {"__setattr__": _refuse, "__delattr__": _refuse}
        return members

    def _with_slots(cls, members):
        """A new class with the same members, because only a new class can have slots."""
        fields = members["__light_fields__"]
        taken = {name for base in cls.__mro__[1:-1] for name in base.__dict__.get("__slots__", ())}
        left_out = {*fields, "__dict__", "__weakref__"}
        namespace = {name: member for name, member in cls.__dict__.items() if name not in left_out}
        namespace.update(members, __slots__=tuple([name for name in fields if name not in taken]))
        made = type(cls)(cls.__name__, cls.__bases__, namespace)
        made.__qualname__ = cls.__qualname__
        return made

    def _compiled(cls, frozen):
        """The `__init__` of a class."""
        known = {"_set": object.__setattr__, "_missing": _MISSING}
        required, keywords, lines = [], [], []
        for name, each in cls.__light_fields__.items():
            parameter = value = name
            if each.default is not _MISSING:
                known[f"_default_{name}"] = each.default
                parameter = f"{name}=_default_{name}"
            elif each.default_factory is not _MISSING:
                known[f"_make_{name}"] = each.default_factory
                parameter, value = f"{name}=_missing", f"_make_{name}() if {name} is _missing else {name}"
            (keywords if each.kw_only else required).append(parameter)
            lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        parameters = ", ".join(["self", *required, *(["*", *keywords] if keywords else [])])
        body = "\n  ".join(lines or ["pass"])
        made = {}
        exec(f"def make({', '.join(known)}):\n def __init__({parameters}):\n  {body}\n return __init__", made)
        init = made["make"](**known)
        init.__module__, init.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
        return init

    def _refuse(_, name, *value):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")

    def _reduce(self):
        state = {name: getattr(self, name) for name in self.__light_fields__}
        return _made, (self.__class__, state)

    def _made(cls, state):
        return cls(**state)
