"""Search a Python script for the devices that it uses: by regular expressions, without parsing it.

The result answers how many devices the script needs, or which devices it names. Docstrings and comments do
not count; a list of devices in a branch or a function does not count either, as it may not be set.
Sources: torch.device and the device modules in PyTorch's documentation, tf.config, jax.devices, `devices` of
Lightning's Trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from gputui.inventory.others_files import go_on

_TRAINER = re.compile(
    r"^[ \t]*from[ \t]+transformers[\w.]*[ \t]+import\b[^\n(]*(?:\([^()]{0,4000})?"
    r"(?:Trainer|TrainingArguments)\b"
    r"|^[^\n#]*\btransformers\.\w*(?:Trainer|TrainingArguments)\b",
    re.MULTILINE,
)
_DOCUMENTATION = re.compile(r"(\"\"\"|''')(.*?)(?:\1|\Z)", re.DOTALL)
_COMMENT = re.compile(r"^([ \t]*)#[^\n]*", re.MULTILINE)
_TEXT = re.compile(r"""\s*(?:str\(\s*)?(?:'([^'\\]*)'|"([^"\\]*)"|([0-9]+))[\s)}]*(?:[#;].*)?""")
_MOST = 100
"""The most places of a script that count."""


class OwnList(NamedTuple):
    """A line where the script unconditionally sets its own list of visible devices."""

    line: int
    text: str


class DeviceUse(NamedTuple):
    """A place that names devices by their position among the visible ones, of which it `needs` that many."""

    line: int
    needs: int
    written: str


class PythonReading(NamedTuple):
    """The use of one vendor's devices by a script. `trainer`: whether it imports transformers' Trainer."""

    lists: tuple[OwnList, ...] = ()
    uses: tuple[DeviceUse, ...] = ()
    trainer: bool = False


@lru_cache(maxsize=8)
def read_python(text: str, variable: str, device_type: str) -> PythonReading:
    """Search the beginning of a Python script for the devices of one vendor.

    `variable` lists the visible devices, "" for none; `device_type` is torch's word for a device
    (`Vendor.device_type`).
    """
    go_on()
    text = without_documentation(text)
    go_on()
    found = islice(_lists(text, variable), _MOST) if variable and variable in text else ()
    return PythonReading(tuple(found), _uses(text, device_type), bool(_TRAINER.search(text)))


def without_documentation(text: str) -> str:
    """Return a script without its docstrings and comment lines; line numbers do not change."""
    text = _DOCUMENTATION.sub(lambda match: "''" + "\n" * match[0].count("\n"), text)
    return _COMMENT.sub(r"\1", text)


def _lists(text: str, variable: str) -> Iterator[OwnList]:
    """Yield the literal lists in lines that are not indented, so in no branch and in no function."""
    name = rf"['\"]{re.escape(variable)}['\"]"
    environ = r"(?:os\.)?environ"
    sets = re.compile(
        rf"^(?:{environ}\[\s*{name}\s*\]\s*=(?!=)|os\.putenv\(\s*{name}\s*,"
        rf"|{environ}\.update\(\s*(?:{re.escape(variable)}\s*=|\{{[^\n]{{0,200}}{name}\s*:))([^\n]*)",
        re.MULTILINE,
    )
    for match in sets.finditer(text):
        literal = _TEXT.fullmatch(match[1])
        if literal is not None:
            listed = next(each for each in literal.groups() if each is not None)
            yield OwnList(text.count("\n", 0, match.start()) + 1, listed)


def _uses(text: str, device_type: str) -> tuple[DeviceUse, ...]:
    word = re.escape(device_type)
    numbers = r"\[?['\"]?([0-9]{1,3}(?:\s*,\s*[0-9]{1,3})*)['\"]?\]?\s*[,)]"
    named = re.compile(
        rf"^[^\n#]*?(?:['\"](?:{word}|/(?:device:)?GPU):([0-9]{{1,3}})['\"]"
        rf"|device\(\s*['\"]{word}['\"]\s*,\s*(?:index\s*=\s*)?([0-9]{{1,3}})"
        rf"|\b{word}\.(?:set_device|device)\(\s*([0-9]{{1,3}})|\.{word}\(\s*([0-9]{{1,3}})\s*[,)]"
        rf"|jax\.(?:local_)?devices\((?:['\"]gpu['\"])?\)\[([0-9]{{1,3}})\])",
        re.MULTILINE,
    )
    counted = re.compile(
        rf"\bdevice_ids\s*=\s*{numbers}|\b(?:Trainer|Fabric)\((?:[^()]|\([^()]*\)){{0,1000}}?\b(?:devices|gpus)\s*=\s*{numbers}"
    )
    found = []
    for match in named.finditer(text):
        position = next(int(each) for each in match.groups() if each is not None)
        found.append((match, position + 1))
    for match in counted.finditer(text):
        if "'cpu'" in match[0] or '"cpu"' in match[0]:
            continue
        listed = next(each for each in match.groups() if each is not None)
        is_list = "," in listed or "[" in match[0].rpartition("=")[2]
        found.append((match, max(map(int, listed.split(","))) + 1 if is_list else int(listed)))
    uses = [
        DeviceUse(text.count("\n", 0, match.end()) + 1, needs, match[0].strip()[-80:].rstrip(",)"))
        for match, needs in found[:_MOST]
        if needs
    ]
    return tuple(sorted(uses))
