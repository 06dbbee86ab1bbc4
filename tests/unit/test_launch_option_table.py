"""The table of launch options: an option that is added only there exists everywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gputui
from gputui.cli.launch_call import launch_request
from gputui.cli.run import parser
from gputui.launching.launch_options import LaunchOptions, table, words_of
from table_tests import each_row

NEW = """
    flavour: str | None = option(
        Option(
            None,
            "--flavour",
            help="what it tastes of",
            label="flavour",
            about="a taste",
            unset="plain",
        )
    )
    additions: Assignments = ()
"""

ASK = """
import json, sys
from gputui.cli.launch_call import launch_request
from gputui.cli.run import parser
from gputui.inventory.device import Device
from gputui.requesting.launch_request import LaunchRequest, received, sent
from gputui.launching.compose import compose
from gputui.launching.history import with_launch
from gputui.launching.history_file import change, load
from gputui.launching.launch_options import LaunchOptions
from gputui.tui.app_state import AppState
from gputui.tui.option_rows import changed, rows

environ = {"HOME": sys.argv[1], "XDG_STATE_HOME": sys.argv[1]}
words = ["-n", "1", "--flavour", "mint", "--nodes", "2", "--rendezvous", "head"]
args = parser().parse_args(words)
options = launch_request(args, ("torchrun", "train.py")).options
change(environ, lambda known: with_launch(known, options, 1, 1.0))
plain = AppState(environ={}, options=LaunchOptions(("python", "x.py")))
row = next(row for row in rows(plain) if row.id == "flavour")
minty = changed(plain, row, " mint ")
print(json.dumps({
    "help": parser().format_whole_help(),
    "parsed": options.flavour,
    "row": [row.label, row.value, row.given],
    "typed": minty.options.flavour,
    "cleared": changed(minty, row, None).options.flavour,
    "kept": load(environ)[0].options.flavour,
    "queued": received(sent(LaunchRequest(options))).options.flavour,
    "elsewhere": compose([Device(index=0, uuid="GPU-0")], options, environ).remarks,
}))
"""


def test_an_option_is_added_in_one_place(tmp_path: Path) -> None:
    source = Path(gputui.__file__).parent
    shutil.copytree(source, tmp_path / "gputui", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "gputui" / "launching" / "launch_options.py"
    before, additions, after = table.read_text().rpartition("    additions: Assignments = ()\n")
    assert additions
    table.write_text(before + NEW.lstrip("\n") + after)
    answer = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path / "home")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    seen = json.loads(answer.stdout)
    assert "--flavour" in seen["help"]
    assert seen["row"] == ["flavour", "plain", False]
    assert (seen["parsed"], seen["typed"], seen["cleared"], seen["kept"]) == ("mint", "mint", None, "mint")
    assert seen["queued"] == "mint"
    assert any("--flavour mint" in remark for remark in seen["elsewhere"])


@each_row("flag", ["--directory", "--logs", "--python"])
def test_a_tilde_of_the_command_line_is_the_shells_to_expand(flag: str) -> None:
    args = parser().parse_args(["-n", "1", flag, "~x/y"])
    assert getattr(args, flag.removeprefix("--")) == "~x/y"


@each_row("value", ["head", "head:1", "::1", "fe80::1", "[fe80::1]:29400"])
def test_what_the_history_has_kept_can_be_written_as_options_again(value: str) -> None:
    options = LaunchOptions(("torchrun", "t.py"), nodes=2, rendezvous=value)
    assert table()["rendezvous"].accepts(value)
    args = parser().parse_args(["-n", "1", *words_of(options)])
    assert launch_request(args, options.command).options == options


@each_row("place", ["\x1b", "head\x1b[2J:7", "he\u202ead", "head\0:7"])
def test_no_meeting_place_has_characters_that_affect_a_terminal(place: str) -> None:
    """It may be that of another box."""
    assert not table()["rendezvous"].accepts(place)
    assert table()["rendezvous"].accepts("head:7") and table()["rendezvous"].accepts("[::1]:7")
