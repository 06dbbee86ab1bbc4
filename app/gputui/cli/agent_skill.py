"""`gputui agent-skill`: how an agent takes a GPU politely, as a skill file."""

from __future__ import annotations

from pathlib import Path

from gputui.cli.common import DONE, Call, Parser


def parser() -> Parser:
    return Parser(
        "agent-skill",
        "Print a skill file, in Markdown, that tells an agent how to share GPUs.",
        example="gputui agent-skill > SKILL.md",
    )


def main(_: Call) -> int:
    print(Path(__file__).with_name("mcp").joinpath("SKILL.md").read_text(encoding="utf-8"), end="")
    return DONE
