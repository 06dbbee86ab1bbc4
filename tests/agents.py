"""Agents for tests: the official SDK's own client, which starts `gputui mcp` and talks to it over stdio."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import Implementation

ALLOWED = ("--allow-run", "--max-gpus", "2", "--max-hours", "8")


def server(environ: Mapping[str, str], *words: str, cwd: Path | None = None) -> StdioServerParameters:
    """The call that starts a server."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "gputui", "mcp", *words], env=dict(environ), cwd=cwd
    )


@asynccontextmanager
async def agent(
    environ: Mapping[str, str],
    *words: str,
    name: str = "test-agent",
    mode: str = "auto",
    cwd: Path | None = None,
) -> AsyncIterator[Client]:
    """A client that is connected to a server of its own."""
    info = Implementation(name=name, version="1")
    with open(os.devnull, "w") as quiet:  # noqa: PTH123
        transport = stdio_client(server(environ, *words, cwd=cwd), errlog=quiet)
        async with Client(transport, client_info=info, mode=mode) as client:
            yield client


async def told(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool that must not fail. (The client has compared it with the tool's schema.)"""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.structured_content
    found: dict[str, Any] = answer.structured_content
    return found


async def error(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The failure of a tool."""
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error, answer.structured_content
    found: dict[str, Any] = answer.structured_content["error"]
    return found
