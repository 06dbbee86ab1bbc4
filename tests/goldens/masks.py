"""Masks for text that differs from one run to the next without meaning."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

_ROOT = str(Path(__file__).parent.parent.parent)
_MASKS = (
    (re.compile(r"pid:\[\d+\]"), lambda _: "<pid namespace>"),
    (re.compile(r"(?<=port=)\d{4,5}|(?<=port\": )\d{4,5}"), lambda _: "<port>"),
    (re.compile(r"(?<=^host: ).*", re.MULTILINE), lambda _: "<load>"),
    (re.compile(r"(?i)(?<=python) ?3\.\d+(?:\.\d+)?"), lambda _: "<version>"),
)
_OF_A_RUN = (
    (re.compile(r"\b20[2-9]\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)?"), lambda _: "<moment>"),
    (re.compile(r"\b(?:pid|process) \d+|(?<=\"pid\": )\d+|(?<=\"ticks\": )\d+"), lambda _: "<number>"),
    (re.compile(r"\b([a-hjkmnp-z][2-9]){2}\b"), lambda _: "<id>"),
    (re.compile(r"(?<=\")(seconds|wall|difference|median|low|high|utilization)\": -?\d+\.\d+(?:e-?\d+)?"),
     lambda found: f'{found[1]}": <figure>'),
    (re.compile(r" +-?[+\d.]+ ?(?:s|m|h|ms|%)(?= |$)", re.MULTILINE), lambda _: " <figure>"),
    (re.compile(r"█[█▏▎▍▌▋▊▉ ]*|[▏▎▍▌▋▊▉] *|(?<=  )#+ *"), lambda _: "<bar>"),
    (re.compile(r",-?\d+\.\d+(?:e-?\d+)?(?=,)"), lambda _: ",<figure>"),
    (re.compile(r"\(\d+\.\d+-\d+\.\d+\)"), lambda _: "(<figures>)"),
    (re.compile(r"(?<=<figure>) +best\b|(?<=\)) +best\b"), lambda _: " <figure>"),
    (re.compile(r"(?<=  )(X|API_KEY)=\S+(?= +sh -c)"), lambda _: "<best>"),
    (re.compile(r" {2,}"), lambda _: "  "),
)  # fmt: skip
"""Masks where commands really ran: ids are random, and durations are measured."""


def masked(text: str, ran: bool = False) -> str:
    """The text without the parts that depend on this run, this folder or this machine."""
    for path, name in (
        (os.environ["HOME"], "<home>"),
        (str(Path(sys.executable).parent), "<bin>"),
        (_ROOT, "<root>"),
        (sys.base_prefix, "<python>"),
        (socket.gethostname(), "<host>") if len(socket.gethostname()) > 3 else ("\0", ""),
    ):
        text = text.replace(path, name)
    from importlib.metadata import version

    text = text.replace(version("gputui"), "<version>")
    for pattern, mask in (*_MASKS, *(_OF_A_RUN if ran else ())):
        text = pattern.sub(mask, text)
    return text
