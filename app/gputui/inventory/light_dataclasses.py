"""dataclass, field, fields and replace as the standard library has them, made for a quick start.

The module `dataclasses` imports `inspect` (6 ms) and compiles six functions for each class: 37 of the 125 ms
of CPU time until the first picture. Here all classes share their functions, and `__init__` is compiled when
the first object of its class is made, or when somebody asks for its signature. Type checkers see the
originals. `dataclasses.fields`, `replace`, `asdict` and `is_dataclass` work for these classes too, and a
dataclass of the standard library may stand below one of these. (What stands below one of those is made by the
standard library, which is there by then.)

What gputui's classes use is there: frozen, slots, kw_only and eq; default, default_factory, repr, compare and
metadata; inheritance, `__post_init__`, `ClassVar`, copying and pickling.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from operator import attrgetter
from typing import TYPE_CHECKING

__all__ = ["dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, replace
else:
    _MISSING = object()

    class _Factory:
        """The default that `help` shows of a field with a default_factory."""

        def __repr__(self):
            return "<factory>"

    _FACTORY = _Factory()

    class _Field:
        """What a class says of one of its fields."""

        __slots__ = ("compare", "default", "default_factory", "kw_only", "metadata", "name", "repr", "type")

        def __init__(self, default, default_factory, repr, compare, metadata):
            self.default, self.default_factory = default, default_factory
            self.repr, self.compare, self.metadata = repr, compare, metadata or {}
            self.name, self.type, self.kw_only = "", "", False

        def is_optional(self):
            return self.default is not _MISSING or self.default_factory is not _MISSING

        def standard(self, **more):
            """The same of the module that this one spares."""
            import dataclasses

            said = {"repr": self.repr, "compare": self.compare, "metadata": self.metadata, **more}
            if self.default is not _MISSING:
                said["default"] = self.default
            if self.default_factory is not _MISSING:
                said["default_factory"] = self.default_factory
            return dataclasses.field(**said)

    _Slot = type(_Field.name)

    class _Standard:
        """`__dataclass_fields__` or `__dataclass_params__`, made by the standard library when asked for."""

        def __init__(self, name):
            self._name = name

        def __get__(self, _, cls):
            import dataclasses

            owner = next(each for each in cls.__mro__ if "__light_fields__" in each.__dict__)
            described = [
                (name, each.type, each.standard(kw_only=each.kw_only))
                for name, each in owner.__light_fields__.items()
            ]
            made = dataclasses.make_dataclass(owner.__name__, described, **owner.__light_params__)
            for name in ("__dataclass_fields__", "__dataclass_params__"):
                setattr(owner, name, getattr(made, name))
            return getattr(made, self._name)

    class _Signature:
        """`__signature__`: there is none, but who asks for it reads `__init__` next, compiled now."""

        def __get__(self, _, cls):
            for each in cls.__mro__:
                if getattr(each.__dict__.get("__init__"), "__name__", "") == "_compile_init":
                    _set_init(each)
            raise AttributeError("__signature__")

    _STANDARD = {name: _Standard(name) for name in ("__dataclass_fields__", "__dataclass_params__")}
    _SIGNATURE = _Signature()

    def field(*, default=_MISSING, default_factory=_MISSING, repr=True, compare=True, metadata=None):
        if default is not _MISSING and default_factory is not _MISSING:
            raise ValueError("cannot specify both default and default_factory")
        return _Field(default, default_factory, repr, compare, metadata)

    def _light_fields(cls):
        """The fields by name; None for a class that is the standard library's, or none."""
        for each in cls.__mro__:
            if "__light_fields__" in each.__dict__:
                return each.__light_fields__
            if "__dataclass_fields__" in each.__dict__:
                break
        return None

    def fields(class_or_object, /):
        found = _light_fields(class_or_object if isinstance(class_or_object, type) else type(class_or_object))
        if found is None:
            from dataclasses import fields as standard_fields

            return standard_fields(class_or_object)
        return tuple(found.values())

    def replace(obj, /, **changes):
        fields = _light_fields(type(obj))
        if fields is None:
            from dataclasses import replace as standard_replace

            return standard_replace(obj, **changes)
        for name in fields:
            if name not in changes:
                changes[name] = getattr(obj, name)
        return obj.__class__(**changes)

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True):
        params = {"frozen": frozen, "slots": slots, "kw_only": kw_only, "eq": eq}

        def decorate(cls):
            inherited = {}
            for base in cls.__mro__[-2:0:-1]:
                if "__light_fields__" in base.__dict__:
                    inherited.update(base.__light_fields__)
                    if base.__light_params__["frozen"] != frozen:
                        own, other = ("frozen", "non-frozen") if frozen else ("non-frozen", "frozen")
                        raise TypeError(f"cannot inherit {own} dataclass from a {other} one")
                elif "__dataclass_fields__" in base.__dict__:
                    return _by_the_standard(cls, params)
            own = _own_fields(cls, kw_only)
            fields = {**inherited, **own}
            _check_order(fields)
            members = _members(fields, params)
            for name in _KEPT & cls.__dict__.keys():
                if cls.__dict__[name] is not None:
                    # The class has written its own.
                    members.pop(name, None)
            if slots:
                return _with_slots(cls, fields, members)
            for name, each in own.items():
                if isinstance(cls.__dict__.get(name), _Field):
                    if each.default is _MISSING:
                        delattr(cls, name)
                    else:
                        members[name] = each.default
            for name, member in members.items():
                setattr(cls, name, member)
            return cls

        return decorate if cls is None else decorate(cls)

    _KEPT = {
        "__delattr__",
        "__eq__",
        "__getstate__",
        "__hash__",
        "__init__",
        "__match_args__",
        "__replace__",
        "__repr__",
        "__setattr__",
        "__setstate__",
    }

    def _by_the_standard(cls, params):
        """A class below one of the standard library's, which knows more kinds of fields."""
        import dataclasses

        for name, said in list(cls.__dict__.items()):
            if isinstance(said, _Field):
                setattr(cls, name, said.standard())
        return dataclasses.dataclass(**params)(cls)

    def _own_fields(cls, kw_only):
        found = {}
        for name, annotation in cls.__annotations__.items():
            if "ClassVar" in str(annotation):
                continue
            # (A default of a class above is an attribute of this one too, unless that has slots.)
            said = getattr(cls, name, _MISSING)
            if said.__class__ is _Field:
                each = said
            else:
                each = _Field(_MISSING if said.__class__ is _Slot else said, _MISSING, True, True, None)
            if each.default.__class__.__hash__ is None:
                kind = type(each.default)
                raise ValueError(
                    f"mutable default {kind} for field {name} is not allowed: use default_factory"
                )
            each.name, each.type, each.kw_only = name, annotation, kw_only
            found[name] = each
        return found

    def _check_order(fields):
        seen = False
        for name, each in fields.items():
            if not each.kw_only:
                if each.is_optional():
                    seen = True
                elif seen:
                    raise TypeError(f"non-default argument {name!r} follows default argument")

    _running = set()
    """The objects whose repr is being made, and the threads that make it."""

    def _owner(cls, fields):
        """The class that was made with these fields, which is `cls` or above it."""
        return next(each for each in cls.__mro__ if each.__dict__.get("__light_fields__") is fields)

    def _members(fields, params):
        frozen = params["frozen"]
        compared = [name for name, each in fields.items() if each.compare]
        shown = [name for name, each in fields.items() if each.repr]
        values = (
            attrgetter(*compared) if len(compared) > 1 else lambda self: [getattr(self, n) for n in compared]
        )

        def _compile_init(self, *args, **kwargs):
            _set_init(_owner(self.__class__, fields)).__init__(self, *args, **kwargs)

        def __repr__(self):
            key = id(self), get_ident()
            if key in _running:
                return "..."
            _running.add(key)
            try:
                inside = ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])
            finally:
                _running.discard(key)
            return f"{self.__class__.__qualname__}({inside})"

        def __eq__(self, other):
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            return hash(tuple(values(self)))

        members = {
            "__light_fields__": fields,
            "__light_params__": params,
            **_STANDARD,
            "__signature__": _SIGNATURE,
            "__match_args__": tuple([name for name, each in fields.items() if not each.kw_only]),
            "__init__": _compile_init,
            "__repr__": __repr__,
            "__replace__": replace,
        }
        if params["eq"]:
            members["__eq__"] = __eq__
            members["__hash__"] = __hash__ if frozen else None
        if frozen:

            def __setattr__(self, name, value):
                cls = _owner(type(self), fields)
                if type(self) is cls or name in fields:
                    _refuse("assign to", name)
                super(cls, self).__setattr__(name, value)

            def __delattr__(self, name):
                cls = _owner(type(self), fields)
                if type(self) is cls or name in fields:
                    _refuse("delete", name)
                super(cls, self).__delattr__(name)

            members["__setattr__"], members["__delattr__"] = __setattr__, __delattr__
            if params["slots"]:
                members["__getstate__"], members["__setstate__"] = _get_state, _set_state
        return members

    def _with_slots(cls, fields, members):
        """The class once more: only a new one can have slots."""
        taken = set()
        for base in cls.__mro__[1:-1]:
            slots = base.__dict__.get("__slots__", ())
            taken.update((slots,) if isinstance(slots, str) else slots)
        namespace = {name: member for name, member in cls.__dict__.items() if name not in fields}
        for name in ("__dict__", "__weakref__"):
            namespace.pop(name, None)
        namespace.update(members, __slots__=tuple([name for name in fields if name not in taken]))
        made = type(cls)(cls.__name__, cls.__bases__, namespace)
        made.__qualname__ = cls.__qualname__
        return made

    def _set_init(cls):
        """Gives the class its compiled `__init__`."""
        fields, frozen = cls.__light_fields__, cls.__light_params__["frozen"]
        known = {"_set": object.__setattr__, "_factory": _FACTORY}
        required, keywords, lines = [], [], []
        for name, each in fields.items():
            parameter = value = name
            if each.default is not _MISSING:
                known[f"_default_{name}"] = each.default
                parameter = f"{name}=_default_{name}"
            elif each.default_factory is not _MISSING:
                known[f"_make_{name}"] = each.default_factory
                parameter, value = f"{name}=_factory", f"_make_{name}() if {name} is _factory else {name}"
            (keywords if each.kw_only else required).append(parameter)
            lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        parameters = ", ".join(["self", *required, *(["*", *keywords] if keywords else [])])
        body = "\n  ".join(lines or ["pass"])
        text = f"def make({', '.join(known)}):\n def __init__({parameters}):\n  {body}\n return __init__"
        # (The names in its annotations are those of the class's module.)
        module = sys.modules.get(cls.__module__)
        made = {}
        exec(text, {} if module is None else module.__dict__, made)
        init = made["make"](**known)
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        init.__annotations__ = {**{name: each.type for name, each in fields.items()}, "return": None}
        cls.__init__ = init
        return cls

    def _refuse(what, name):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {what} field {name!r}")

    def _get_state(self):
        return [getattr(self, each.name) for each in fields(self)]

    def _set_state(self, state):
        for each, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, each.name, value)
