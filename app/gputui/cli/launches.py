"""`gputui launches`: the history of launches and the named launches. `gputui run --saved` starts one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    WrongCallError,
    add_json_option,
    output_width,
    print_json,
    print_lines,
    say,
)
from gputui.inventory.columns import printed
from gputui.inventory.typed_json import Document
from gputui.launching.history import Launches, check_name, find_launch, launch_columns, named
from gputui.launching.history_file import ROW, change, load, row

LAUNCHES = Document("launches", launches=ROW.list)


def parser() -> Parser:
    made = Parser(
        "launches",
        "List recent launches, the latest first, and launches that have a name. `gputui run --saved NAME`\n"
        "(or its number) starts one again on the best devices that are free now.",
        example="gputui launches name 1 nightly\ngputui run --saved nightly",
    )
    made.add_argument("what", nargs="?", choices=("list", "name", "forget"), default="list")
    made.add_argument("which", nargs="?", metavar="NAME|N", help="name or number of a launch")
    made.add_argument(
        "name", nargs="?", metavar="NAME", help="its new name; without one, the name is removed"
    )
    add_json_option(made, "print all saved launches as JSON")
    return made


def main(args: Call) -> int:
    if args.what == "list":
        if args.which is not None:
            raise WrongCallError(f"list does not take {args.which!r}")
        return _list(args.json)
    if args.which is None:
        raise WrongCallError(f"{args.what} needs a launch: its name or its number")
    if args.what == "forget" and args.name is not None:
        raise WrongCallError("forget needs one launch")
    if args.what == "name" and args.name:
        check_name(args.name)
    change(os.environ, _changed(args.what, args.which, args.name or None))
    return _list(True) if args.json else DONE


def _changed(what: str, which: str, name: str | None) -> Callable[[Launches], Launches]:
    """Return the function that changes the launches under the lock of their file."""

    def how(now: Launches) -> Launches:
        place = find_launch(now, which)
        if place is None:
            raise WrongCallError(f"no launch is saved as {which!r}; `gputui launches` lists them")
        return named(now, place, name) if what == "name" else (*now[:place], *now[place + 1 :])

    return how


def _list(as_json: bool) -> int:
    known = load(os.environ)
    if as_json:
        print_json(LAUNCHES.write(launches=[row(each) for each in known]))
    elif not known:
        say("no launches are saved yet: gputui saves those started in a terminal")
    else:
        print_lines(printed(launch_columns(known, time.time()), known, output_width()))
    return DONE
