"""`--hosts`: the other boxes of a call, and how to connect to them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputui.cli.common import Call, WrongCallError, own_settings
from gputui.sources.hosts.alias import ALL, alias

if TYPE_CHECKING:
    # For types only: `pick`, which must be fast, has this option too.
    from gputui.sources.hosts.ssh import Way

NO_BOXES = 'the settings name no boxes; name them with `boxes = ["…"]` below `[hosts]`'


def add_hosts_option(parser: argparse.ArgumentParser) -> None:
    """Add `--hosts A,B` or `--hosts all`."""
    parser.add_argument(
        "--hosts",
        metavar="A,B|all",
        help="query these boxes over ssh, named as in your ssh configuration; all: the boxes in the settings",
    )


def without_options(words: Sequence[str], *names: str) -> list[str]:
    """Return the words of a call without these options and their values."""
    left, rest = list[str](), list(words)
    while rest:
        word = rest.pop(0)
        if word in names:
            del rest[:1]
        elif word.partition("=")[0] not in names:
            left.append(word)
    return left


def boxes_named(text: str) -> tuple[str, ...]:
    """Return the boxes that a list names, without repetitions. Raises WrongCallError."""
    if text == ALL:
        return all_boxes()
    return tuple(dict.fromkeys(alias(word.strip()) for word in text.split(",")))


def all_boxes() -> tuple[str, ...]:
    """Return the boxes of the settings. Raises WrongCallError where there are none."""
    boxes = own_settings().hosts.boxes
    if not boxes:
        raise WrongCallError(NO_BOXES)
    return boxes


def boxes_of(args: Call) -> tuple[str, ...]:
    """Return the boxes of a call with `--hosts`. Raises WrongCallError."""
    if any(getattr(args, name, None) is not None for name in ("demo", "recording", "root")):
        raise WrongCallError("--demo, --from and --root cannot be used with --hosts, which shows other boxes")
    return boxes_named(args.hosts)


def way(prompts: bool = False) -> Way:
    """Return the way to connect to boxes, by the settings."""
    from gputui.sources.hosts.ssh import Way

    return Way(own_settings().hosts.timeout, prompts)
