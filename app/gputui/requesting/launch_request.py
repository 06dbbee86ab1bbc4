"""The launch request: a command with its launch options, and the devices that it is to run on.

The command line parses it and the screen makes it. A job keeps it in its record, a job that waits in line is
started with it, a rerun changes it, and it is sent to another box (`gputui run --request`). `words` are the
equivalent options of `gputui run`; they are only for a person to type, and no program parses them.
"""

from __future__ import annotations

import json
import math
import os.path
from typing import Annotated, Any

from gputui.allocating.device_request import DeviceRequest
from gputui.choosing.grouping import parse
from gputui.inventory.light_dataclasses import field, frozen, replace
from gputui.inventory.typed_json import DocumentError, Form, Record, Words, loads, number, parsed
from gputui.launching.launch_options import LaunchOptions, words_of

NEAR = "near"
"""The value of `--threads` that means the CPUs near the devices."""


@frozen
class ModelRequest:
    """The training, for `-n auto` and plans. None where the call does not give a value: the command may."""

    model: Words | None = None
    parameters: Words | None = None
    batch: int | None = None
    sequence: int | None = None
    precision: Words | None = None
    optim: Words | None = None
    checkpointing: bool | None = None
    lora: int | None = None
    accumulation: int | None = None

    @property
    def optimizer(self) -> Words | None:
        """`optim`, by its name in a workload."""
        return self.optim


@frozen
class LaunchRequest:
    """A launch as it was asked for. `options.python` is relative to the directory of the launch. `near` is
    `--threads near`: a number of threads that depends on the devices. `client` is the agent that asks.
    `after` and `after_ok` are the jobs that must have ended before, and ended well: "k3f9,nightly"."""

    options: LaunchOptions
    devices: DeviceRequest = field(default_factory=DeviceRequest)
    model: ModelRequest = field(default_factory=ModelRequest)
    near: bool = False
    client: Words | None = None
    after: Words | None = None
    after_ok: Words | None = None

    @property
    def awaited(self) -> list[str]:
        """The jobs that it waits for, those of `after` first."""
        return [*jobs_of(self.after), *jobs_of(self.after_ok)]

    @property
    def words(self) -> list[str]:
        """The arguments of `gputui run` that ask for the same launch, without `model`."""
        options = replace(self.options, python=self.python_in_call)
        near = ["--threads", NEAR] if self.near else []
        given = {"--after": self.after, "--after-ok": self.after_ok}
        jobs = [f"{flag}={ids}" for flag, ids in given.items() if ids is not None]
        return [*self.devices.words, *near, *jobs, *words_of(options), "--", *options.command]

    @property
    def python_in_call(self) -> str | None:
        """The interpreter as a call names it: relative to the directory in which the call is typed."""
        python = self.options.python
        if python is None or "/" not in python:
            return python
        # Not by Path, which drops "/.".
        return os.path.join(self.options.directory or "", python)  # noqa: PTH118


def jobs_of(text: str | None) -> list[str]:
    """The jobs of `after`, or of `after_ok`."""
    return [] if text is None else [word.strip() for word in text.split(",")]


def python_in_launch(python: str | None, directory: str | None) -> str | None:
    """The path of an interpreter, relative to our working directory, for a launch in another directory."""
    if python is None or directory is None or "/" not in python:
        return python
    # Not resolved: the interpreter of a virtual environment is a link that leads out of it.
    return os.path.abspath(python)  # noqa: PTH100


_FOR_EVER = "forever"


def _read_wait(value: Any) -> float:
    return math.inf if value == _FOR_EVER else number(most=1e12).read(value)


_GROUP = Annotated[Any, Form(parsed(parse).read, lambda group: group.word)]
_WAIT = Annotated[float, Form(_read_wait, lambda wait: _FOR_EVER if wait == math.inf else wait)]
Record(DeviceRequest, group=_GROUP | None, wait=_WAIT | None)
REQUEST = Record(LaunchRequest)


def sparse(document: Any) -> Any:
    """A document without the keys whose value is null or false."""
    if not isinstance(document, dict):
        return document
    return {key: sparse(value) for key, value in document.items() if value is not None and value is not False}


def sent(request: object, record: Record[Any] = REQUEST) -> str:
    """A request as one word of ASCII, which `received` reads."""
    return json.dumps(sparse(record.write(request)), separators=(",", ":"))


def received(text: str, record: Record[Any] = REQUEST) -> Any:
    """Read the request that `sent` wrote. Raises DocumentError, also for unknown keys: a demand of a newer
    gputui must not be ignored."""
    document = loads(text)
    request = record.read(document)
    if sparse(record.write(request)) != document:
        raise DocumentError("it has keys of a newer gputui")
    return request
