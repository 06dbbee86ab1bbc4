"""dataclass, field, fields and replace as the standard library has them, made for a quick start.

The module `dataclasses` imports `inspect` (6 ms) and compiles six functions for each class: 37 of the 125 ms
of CPU time until the first picture. Here all classes share their functions, and `__init__` is compiled when
the first object of its class is made. Type checkers see the originals. `dataclasses.fields`, `replace`,
`asdict` and `is_dataclass` work for these classes too.

What gputui's classes use is there: frozen, slots, kw_only and eq; default, default_factory, repr, compare and
metadata; inheritance, `__post_init__`, `ClassVar`, copying and pickling.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

__all__ = ["dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, replace
else:
    _MISSING = object()

    class _Field:
        """What a class says of one of its fields."""

        __slots__ = (
            "annotation",
            "compare",
            "default",
            "default_factory",
            "kw_only",
            "metadata",
            "name",
            "repr",
        )

        def __init__(self, default, default_factory, repr, compare, metadata):
            self.default, self.default_factory = default, default_factory
            self.repr, self.compare, self.metadata = repr, compare, metadata or {}
            self.name, self.annotation, self.kw_only = "", "", False

    class _StandardFields:
        """`__dataclass_fields__`, made by the module that this one spares when something asks for it."""

        def __get__(self, _, cls):
            import dataclasses

            described = []
            for name, each in cls.__light_fields__.items():
                said = {"repr": each.repr, "compare": each.compare, "kw_only": each.kw_only}
                if each.default is not _MISSING:
                    said["default"] = each.default
                if each.default_factory is not _MISSING:
                    said["default_factory"] = each.default_factory
                said["metadata"] = each.metadata
                described.append((name, each.annotation, dataclasses.field(**said)))
            made = dataclasses.make_dataclass(cls.__name__, described).__dataclass_fields__
            cls.__dataclass_fields__ = made
            return made

    def field(*, default=_MISSING, default_factory=_MISSING, repr=True, compare=True, metadata=None):
        return _Field(default, default_factory, repr, compare, metadata)

    def fields(class_or_object, /):
        return tuple(class_or_object.__light_fields__.values())

    def replace(obj, /, **changes):
        fields = getattr(obj, "__light_fields__", None)
        if fields is None:
            # Another program's class.
            from dataclasses import replace as standard_replace

            return standard_replace(obj, **changes)
        for name in fields:
            if name not in changes:
                changes[name] = getattr(obj, name)
        return obj.__class__(**changes)

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True):
        def decorate(cls):
            own = _own_fields(cls, kw_only)
            inherited = {}
            for base in cls.__mro__[-1:0:-1]:
                inherited.update(base.__dict__.get("__light_fields__", ()))
            members = _members({**inherited, **own}, frozen, eq)
            for name in ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"):
                if cls.__dict__.get(name) is not None:
                    # The class has written its own.
                    members.pop(name, None)
            if slots:
                return _with_slots(cls, own, inherited, members)
            for name, each in own.items():
                if each.default is not _MISSING:
                    members[name] = each.default
                elif name in cls.__dict__:
                    delattr(cls, name)
            for name, member in members.items():
                setattr(cls, name, member)
            return cls

        return decorate if cls is None else decorate(cls)

    def _own_fields(cls, kw_only):
        found = {}
        for name, annotation in cls.__annotations__.items():
            if "ClassVar" in annotation:
                continue
            said = cls.__dict__.get(name, _MISSING)
            each = said if isinstance(said, _Field) else _Field(said, _MISSING, True, True, None)
            each.name, each.annotation, each.kw_only = name, annotation, kw_only
            found[name] = each
        return found

    def _members(fields, frozen, eq):
        compared = [name for name, each in fields.items() if each.compare]
        shown = [name for name, each in fields.items() if each.repr]
        values = (
            attrgetter(*compared) if len(compared) > 1 else lambda self: [getattr(self, n) for n in compared]
        )

        def __init__(self, *args, **kwargs):
            for cls in self.__class__.__mro__:
                if cls.__dict__.get("__light_fields__") is fields:
                    cls.__init__ = _compiled_init(cls, fields, frozen)
                    cls.__init__(self, *args, **kwargs)
                    return

        def __repr__(self):
            inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
            return f"{self.__class__.__qualname__}({inside})"

        def __eq__(self, other):
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            return hash(tuple(values(self)))

        members = {
            "__light_fields__": fields,
            "__dataclass_fields__": _StandardFields(),
            "__match_args__": tuple(name for name, each in fields.items() if not each.kw_only),
            "__init__": __init__,
            "__repr__": __repr__,
        }
        if eq:
            members["__eq__"] = __eq__
            members["__hash__"] = __hash__ if frozen else None
        if frozen:
            members["__setattr__"], members["__delattr__"] = _refuse_setting, _refuse_deleting
            members["__getstate__"], members["__setstate__"] = _get_state, _set_state
        return members

    def _with_slots(cls, own, inherited, members):
        """The class once more: only a new one can have slots."""
        namespace = {name: member for name, member in cls.__dict__.items() if name not in own}
        for name in ("__dict__", "__weakref__"):
            namespace.pop(name, None)
        namespace.update(members, __slots__=tuple(name for name in own if name not in inherited))
        made = type(cls)(cls.__name__, cls.__bases__, namespace)
        made.__qualname__ = cls.__qualname__
        return made

    def _compiled_init(cls, fields, frozen):
        known = {"_set": object.__setattr__, "_missing": _MISSING}
        required, keywords, lines = ["self"], [], []
        for name, each in fields.items():
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
        parameters = ", ".join([*required, *(["*", *keywords] if keywords else [])])
        body = "\n ".join(lines or ["pass"])
        exec(f"def __init__({parameters}):\n {body}", known)
        init = known["__init__"]
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        return init

    def _refuse_setting(_self, name, _value):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_deleting(_self, name):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _get_state(self):
        return [getattr(self, name) for name in self.__light_fields__]

    def _set_state(self, state):
        for name, value in zip(self.__light_fields__, state, strict=True):
            object.__setattr__(self, name, value)
