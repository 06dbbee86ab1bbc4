"""The protocol, by its official Python SDK: tools, resources, progress, and calls whose client is gone."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from gputui import __version__
from gputui.cli.common import WrongCallError
from gputui.cli.mcp.tools import Call, Tools, clean, client_name
from gputui.inventory import document
from gputui.inventory.errors import GputuiError
from gputui.inventory.typed_json import Json

_BOX, _LOG = "gputui://box", "gputui://jobs/{}/log"
_JSON, _TEXT = "application/json", "text/plain"
_MOST_LOGS = 20
"""The most jobs whose logs are listed as resources; other logs can also be read."""
_MOST_BYTES = 16 * 2**20
"""The most bytes of one line."""
Context = ServerRequestContext[Any, Any]


def serve(tools: Tools) -> None:
    """Serve one client until it closes our standard input. Raises OSError if it no longer reads."""
    if sys.stdin is None or sys.stdout is None:
        raise WrongCallError("standard input or output is closed: there is no client")
    # The thread that reads standard input cannot be interrupted: Python's own handler would wait for a line.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        anyio.run(_serve, _Served(tools))
    except Exception as error:
        while inside := getattr(error, "exceptions", ()):
            error = inside[0]
        raise error from None


async def _serve(served: _Served) -> None:
    server: Server[Any] = Server(
        "gputui",
        version=__version__,
        instructions=served.instructions,
        on_list_tools=served.list_tools,
        on_call_tool=served.call_tool,
        on_list_resources=served.list_resources,
        on_list_resource_templates=served.list_templates,
        on_read_resource=served.read_resource,
    )
    async with stdio_server(_lines()) as (messages, answers):  # type: ignore[arg-type]
        await server.run(messages, answers, server.create_initialization_options())


async def _lines() -> AsyncIterator[str]:
    """The lines that the client sends; in place of one that is too long, lines that are no message.

    The programs that we start do not have our standard input.
    """
    with open(os.dup(0), "rb", closefd=False) as client:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        while line := await anyio.to_thread.run_sync(client.readline, _MOST_BYTES):
            yield line.decode(errors="replace") if len(line) < _MOST_BYTES else ""


class _Served:
    """The handlers of the requests. They work in threads, so that a call that waits does not delay others."""

    def __init__(self, tools: Tools) -> None:
        told = json.loads(Path(__file__).with_name("tools.json").read_text(encoding="utf-8"))
        self._tools, self.instructions = tools, told["instructions"]
        offered = [each for each in told["tools"] if tools.runs or not each.get("launches")]
        self._offered = {each["name"]: _described(each, told["$defs"]) for each in offered}

    async def list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate({"tools": [*self._offered.values()]})

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool, asked = self._offered.get(params.name), params.arguments or {}
        if tool is None:
            raise _refused(WrongCallError(f"there is no tool {params.name[:80]!r}"))

        def answer(call: Call) -> Any:
            check(asked, tool["inputSchema"])
            return clean(getattr(self._tools, params.name)(call, **asked))

        try:
            found, failed = await _in_thread(ctx, answer), False
        except GputuiError as error:
            found, failed = _told(error), True
        text = types.TextContent(text=json.dumps(found))
        return types.CallToolResult(content=[text], structured_content=found, is_error=failed)

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        box = types.Resource(uri=_BOX, name="box", title="The GPUs of this machine", mime_type=_JSON)
        listed = [box]
        for job in (await _in_thread(ctx, lambda call: self._tools.jobs()))[:_MOST_LOGS]:
            title = clean(f"The log of job {job.id}{f' ({job.name})' if job.name else ''}")
            uri = _LOG.format(job.id)
            listed.append(types.Resource(uri=uri, name=job.id, title=title, mime_type=_TEXT))
        return types.ListResourcesResult(resources=listed)

    async def list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        uri = _LOG.format("{id}")
        log = types.ResourceTemplate(uri_template=uri, name="log", title="The log of a job", mime_type=_TEXT)
        return types.ListResourceTemplatesResult(resource_templates=[log])

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = params.uri

        def text(call: Call) -> tuple[str, str]:
            if uri == _BOX:
                return _JSON, json.dumps(clean(self._tools.list_gpus(call)))
            job = re.fullmatch(_LOG.format("([a-z0-9]{1,64})"), uri)
            if job is None:
                raise WrongCallError(f"there is no resource {uri[:80]!r}")
            return _TEXT, "\n".join(clean(self._tools.job_log(call, job[1])["lines"]))

        try:
            kind, found = await _in_thread(ctx, text)
        except GputuiError as error:
            raise _refused(error) from None
        contents = types.TextResourceContents(uri=uri, mime_type=kind, text=found)
        return types.ReadResourceResult(contents=[contents])


def _described(tool: Json, defined: Json) -> Json:
    """A tool as it is listed, with its schemas."""
    output = Path(document.__file__).with_name(f"{tool['output']}.schema.json")
    own = {key: value for key, value in tool.items() if key not in ("output", "launches")}
    closed = {"type": "object", **tool["inputSchema"], "additionalProperties": False, "$defs": defined}
    return {**own, "inputSchema": closed, "outputSchema": json.loads(output.read_text(encoding="utf-8"))}


def check(asked: Json, schema: Json) -> None:
    """Raise WrongCallError for arguments that do not match the schema."""
    wrong = best_match(Draft202012Validator(schema).iter_errors(asked))
    if wrong is not None:
        place = ".".join(map(str, wrong.absolute_path)) or "arguments"
        raise WrongCallError(f"{place[:80]}: {wrong.message[:300]}")
    try:
        json.dumps(asked, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise WrongCallError("arguments: not valid JSON, or not valid Unicode") from None


async def _in_thread(ctx: Context, work: Callable[[Call], Any]) -> Any:
    """Do the work in a thread, and report its progress. A call ends once nobody waits for it."""
    said = ctx.session.client_params
    steps = iter(range(1, 1_000_000))

    def tell(text: str) -> None:
        anyio.from_thread.run(ctx.session.report_progress, next(steps), None, text)

    call = Call(client_name(said.client_info.name if said else None), tell)
    try:
        return await anyio.to_thread.run_sync(work, call, abandon_on_cancel=True)
    finally:
        call.gone.set()


def _told(error: GputuiError) -> Json:
    told: Json = clean(document.error_document(error, error.remedy))
    return told


def _refused(error: GputuiError) -> MCPError:
    found = _told(error)
    return MCPError(types.INVALID_PARAMS, found["error"]["message"], found)
