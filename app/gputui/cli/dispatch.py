"""Find the subcommand of a call, run it, and turn every outcome into an exit status."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from itertools import pairwise

from gputui.allocating.errors import NotEnoughError
from gputui.cli.common import DONE, WRONG_CALL, Call, WrongCallError, print_json, say
from gputui.cli.subcommands import STARTING, SUBCOMMANDS, module_of
from gputui.inventory.errors import GputuiError
from gputui.system.terminal_abilities import ascii_only, in_ascii, is_utf8

_OUTPUT_LOST = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO)
_NO_THREAD = "can't start new thread"
"""Python's message then; the exception has no type of its own."""
_TAKE_A_VALUE = ("--from", "--interval", "--root")
_STARTS = {"jobs": "`gputui run --detach -- …` does", "mcp": "run_job does (--allow-run)"}
"""What starts a command in place of a subcommand that does not."""
_VALUES_WITHIN = ("--demo=", "--from=", "--interval=", "--root=")


class _InterruptedError(GputuiError):
    code, status = "interrupted", 130


class _NoThreadError(GputuiError):
    code, status = "no_threads", 126


def dispatch(words: list[str]) -> int:
    """Run one call and return its exit status."""
    name, status, rest = "", DONE, words
    _speak_plainly()
    before, command = _split(words)
    # (With --follow, each line has a key for an error.)
    as_json = "--json" in before and "--follow" not in before
    try:
        if _asks_for_demos(before):
            status = _print_demos()
        else:
            rest = before = _settle_demo(before)
            name, rest = _subcommand(before)
            status = run_subcommand(name, rest, command)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except GputuiError as error:
        wrong = error.status == WRONG_CALL
        remedy = error.remedy or (_meant(rest, name, command) if wrong else None)
        # Who asks `pick` asks what is free now; who runs something can wait.
        in_line = name == "run" and bool(error.devices) and "--wait" in (remedy or "")
        return _failed(error, remedy, as_json, wrong or in_line)
    except KeyboardInterrupt:
        return _failed(_InterruptedError(), None, as_json)
    except RuntimeError as error:
        if str(error) != _NO_THREAD:
            raise
        return _failed(_NoThreadError("the system gives gputui no more threads (`ulimit -u`)"), None, as_json)
    except OSError as error:
        if error.errno not in _OUTPUT_LOST:
            raise
        return _output_lost(error)


def run_subcommand(name: str, words: Sequence[str], command: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status. Raises WrongCallError where it starts no command and one
    is given."""
    module = importlib.import_module(module_of(name))
    args: Call = module.parser().parse_args(words, Call(subcommand=name, words=words, argv=command))
    if command is not None and name in SUBCOMMANDS.keys() - STARTING:
        remedy = _STARTS.get(name, "use `gputui run` to start a command")
        raise WrongCallError(f"{name} does not start commands; {remedy}")
    status: int = module.main(args)
    return status


def _meant(words: list[str], name: str, command: list[str] | None) -> str:
    """The remedy of a wrong call: the call that was probably meant, or where to read on."""
    from gputui.cli.corrected import corrected

    unknown = not name and bool(words) and not words[0].startswith("-")
    demo = not name and any(word.startswith("--demo=") for word in words)
    meant = None if demo else corrected(words, None if unknown else name, command)
    return meant or f"see `gputui {name + ' ' if name else ''}--help`"


def _failed(error: GputuiError, remedy: str | None, as_json: bool, says_remedy: bool = False) -> int:
    """Print the failure of a call as a message, and as an object on stdout if the call answers in JSON.
    Returns the exit status."""
    message = str(error)
    if isinstance(error, NotEnoughError) and len(error.reasons) > 1:
        from gputui.inventory.text_table import aligned

        say(f"{error.summary}:")
        for line in aligned(error.reasons):
            say(f"  {line.lstrip()}")
        if says_remedy:
            say(f"{remedy}")
    elif message:
        say(f"{message}; {remedy}" if says_remedy else message)
    if as_json:
        from gputui.inventory.document import error_document

        print_json(error_document(error, remedy))
    return error.status


def _speak_plainly() -> None:
    """Let the output streams accept any text: with UTF-8, a command's bytes are written unchanged; where only
    ASCII or another encoding can be shown, our own glyphs are replaced, and other characters are escaped."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            if not ascii_only(stream, os.environ):
                stream.reconfigure(errors="surrogateescape")
                continue
            import codecs

            codecs.register_error("gputui.plain", in_ascii)
            encoding = "ascii" if is_utf8(stream) else stream.encoding
            stream.reconfigure(encoding=encoding, errors="gputui.plain")


def _output_lost(error: OSError) -> int:
    """The exit status where nobody reads our output any more (`| head`), as of a shell, or it cannot be
    written."""
    # The exit must not try to write the buffered rest again.
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if isinstance(error, BrokenPipeError):
        return 128 + 13
    say(f"cannot write: {error.strerror}")
    return 1


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """gputui's own words, and the command after the first `--`; None for the command without a `--`."""
    if "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _asks_for_demos(words: list[str]) -> bool:
    """Whether the call is `--demo list` (or `help`), which asks for the names of the boxes."""
    return not {"--demo=list", "--demo=help"}.isdisjoint((*words, *map("=".join, pairwise(words))))


def _print_demos() -> int:
    """Print a line for each simulated box."""
    from gputui.sources.simulated.boxes import BOXES

    wide = max(map(len, BOXES))
    for name, box in BOXES.items():
        print(f"{name:<{wide}}  {box.about}")
    return DONE


def _settle_demo(words: list[str]) -> list[str]:
    """Rewrite `--demo WORD` to `--demo=BOX`: `--demo ls` is the default box and a subcommand, `--demo laptop
    ls` names a box."""
    if "--demo" not in words:
        return words
    from gputui.sources.simulated.boxes import DEFAULT
    from gputui.sources.simulated.source import is_box

    place = words.index("--demo")
    box, *behind = words[place + 1 :] or [""]
    if not is_box(box):
        box, behind = DEFAULT, words[place + 1 :]
    return [*words[:place], f"--demo={box}", *behind]


def _subcommand(words: list[str]) -> tuple[str, list[str]]:
    """The subcommand's name ("" for the screen) and the other words."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        if words[place] not in _TAKE_A_VALUE and not words[place].startswith(_VALUES_WITHIN):
            break
        place += 2 if words[place] in _TAKE_A_VALUE else 1
    if place >= len(words) or words[place].startswith("-"):
        return "", words
    name = words[place]
    if name in SUBCOMMANDS:
        return name, words[:place] + words[place + 1 :]
    if any(word.startswith("--demo=") for word in words[:place]):
        from gputui.sources.simulated.source import no_box

        raise WrongCallError(no_box(name))
    raise WrongCallError(f"no subcommand is called {name!r}")
