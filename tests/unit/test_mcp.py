"""`gputui mcp`: what agents see, what they may do, and what is left when one of them is gone."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra gputui[mcp] is not installed")
pytest.importorskip("jsonschema")

import anyio
import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import MCPError

from agents import ALLOWED, agent, error, server, told
from gputui.allocating.queue import waiters
from gputui.cli.mcp import limits as limits_module
from gputui.cli.mcp.limits import Limits
from gputui.cli.mcp.server import _Served, check
from gputui.cli.mcp.tools import Call as ToolCall
from gputui.cli.mcp.tools import Tools, clean, client_name
from gputui.inventory.errors import GputuiError
from gputui.inventory.job import Job
from gputui.jobs.store import all_jobs
from gputui.launching.launch import Launch
from gputui.sources.simulated.boxes import BOXES
from published_schemas import closed, published
from table_tests import each_row
from unit.calling import Call
from unit.claims_support import Box
from unit.jobs_support import until

READING = ["job_log", "job_status", "list_gpus", "pick_gpus", "plan_training", "queue"]

pytestmark = pytest.mark.usefixtures("jobs_at_once")


def sleeper(seconds: int = 600) -> list[str]:
    return [sys.executable, "-c", f"import time; print('begun', flush=True); time.sleep({seconds})"]


# what is offered


async def test_tools_say_what_they_do_and_answer_as_their_schemas_say(box: Box) -> None:
    async with agent(box.environ) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert sorted(tools) == READING
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
        for tool in tools.values():
            assert tool.output_schema and tool.input_schema["additionalProperties"] is False
        box_now = await told(client, "list_gpus", links=True)
        assert [each["verdict"]["state"] for each in box_now["devices"]] == ["free"] * 8
        assert len((await told(client, "pick_gpus", n=2))["devices"]) == 2
        assert (await told(client, "plan_training", parameters="1B", n=1))["strategies"]
        assert (await told(client, "queue"))["waiters"] == []
        assert (await told(client, "job_status"))["jobs"] == []
        assert (await error(client, "pick_gpus", n=99))["code"] == "not_enough"
        assert (await error(client, "job_log", id="nope"))["code"] == "no_such_job"
        with pytest.raises(MCPError) as raised:
            await client.call_tool("run_job", {"command": ["true"]})
        assert raised.value.data["error"]["code"] == "wrong_call", "there is no tool that launches"


async def test_an_agent_starts_follows_and_stops_a_job_that_bears_its_name(box: Box) -> None:
    async with agent(box.environ, *ALLOWED, name="my agent\x1b[2J") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert sorted(tools) == sorted([*READING, "run_job", "stop_job"])
        hints = {name: tool.annotations for name, tool in tools.items()}
        assert hints["stop_job"] and hints["stop_job"].destructive_hint and hints["stop_job"].idempotent_hint
        assert hints["run_job"] and not hints["run_job"].destructive_hint
        job = (await told(client, "run_job", command=sleeper(), name="nightly"))["job"]
        assert (job["state"], job["client"], job["time_limit"]) == ("running", "my-agent-2J", 8 * 3600)
        assert "(by my-agent-2J)" in box.call("jobs")[1]
        assert "(by my-agent-2J)" in box.call("claims")[1]
        assert "(by my-agent-2J)" in box.call("people")[1]
        (held,) = (await told(client, "queue"))["held"]
        assert (held["client"], held["job"]) == ("my-agent-2J", job["id"]) and held["until"]
        until(lambda: "begun" in Path(job["log"]).read_text())
        assert (await told(client, "job_log", id="nightly"))["lines"] == ["begun"]
        steps = list[str]()

        async def progress(*said: Any) -> None:
            steps.append(said[-1])

        waited = await client.call_tool(
            "job_status", {"id": job["id"], "wait": 0.2}, progress_callback=progress
        )
        assert waited.structured_content["jobs"][0]["state"] == "running"
        assert steps == [f"job {job['id']} is running"]
        listed = {each.uri: each for each in (await client.list_resources()).resources}
        assert {"gputui://box", f"gputui://jobs/{job['id']}/log"} == set(listed)
        log = await client.read_resource(f"gputui://jobs/{job['id']}/log")
        assert log.contents[0].text == "begun"
        box_now = json.loads((await client.read_resource("gputui://box")).contents[0].text)
        assert [each["verdict"]["state"] for each in box_now["devices"]].count("claimed") == 1
        with pytest.raises(MCPError) as raised:
            await client.read_resource("gputui://jobs/../../etc/passwd/log")
        assert raised.value.data["error"]["code"] == "wrong_call"
        (stopped,) = (await told(client, "stop_job", id=job["id"]))["jobs"]
        assert (stopped["state"], stopped["client"]) == ("stopped", "my-agent-2J")
        assert (await told(client, "stop_job", id=job["id"]))["jobs"][0]["state"] == "stopped"


async def test_a_client_of_the_older_protocol_is_served_too(box: Box) -> None:
    async with agent(box.environ, *ALLOWED, mode="legacy", name="older") as client:
        job = (await told(client, "run_job", command=["true"], devices="none"))["job"]
        assert job["client"] == "older"
        assert (await told(client, "job_status", id=job["id"], wait=30))["jobs"][0]["state"] == "done"
        assert (await error(client, "pick_gpus", n=99))["code"] == "not_enough"
        assert len((await told(client, "list_gpus"))["devices"]) == 8


# limits


async def test_what_is_asked_for_beyond_the_limits_is_refused_and_nothing_is_started(box: Box) -> None:
    async with agent(box.environ, *ALLOWED) as client:
        for asked in (
            {"n": 3},
            {"devices": "0,1,2"},
            {"hours": 8.1},
            {"command": ["torchrun", "--nproc-per-node=3", "t.py"]},
        ):
            found = await error(client, "run_job", **{"command": sleeper(), **asked})
            assert found["code"] == "outside_limits", asked
        assert all_jobs(box.environ) == [] and box.claimed() == []
        await told(client, "run_job", command=sleeper(), n=1, hours=1)
        found = await error(client, "run_job", command=sleeper(), n=2)
        assert found["code"] == "outside_limits" and "1 are in use" in found["message"]
        async with agent(box.environ, *ALLOWED, name="another") as other:
            assert (await error(other, "run_job", command=sleeper(), n=2))["code"] == "outside_limits"


@pytest.mark.thorough
async def test_those_who_wait_count_and_so_do_those_who_have_waited(box: Box) -> None:
    """Six calls of two servers ask at the same time: two of them may wait, and run then; no more, ever."""
    holder, ends, codes = box.hold(*range(8)), list[str](), list[str]()

    async def ask(client: Any) -> None:
        answer = await client.call_tool("run_job", {"command": sleeper(), "wait": 60})
        if answer.is_error:
            codes.append(answer.structured_content["error"]["code"])
        else:
            ends.append(answer.structured_content["job"]["id"])
        if len(codes) == 4:
            holder.kill()

    async with (
        agent(box.environ, *ALLOWED) as one,
        agent(box.environ, *ALLOWED, name="two") as two,
        anyio.create_task_group() as all_of_them,
    ):
        for _ in range(3):
            all_of_them.start_soon(ask, one)
            all_of_them.start_soon(ask, two)
    assert (len(ends), codes) == (2, ["outside_limits"] * 4) and len(box.claimed()) == 2


async def test_only_jobs_of_agents_are_reached_where_the_user_says_so(box: Box) -> None:
    words = ("run", "-q", "--detach", "--json", "--gpus", "none", "--", "sleep", "600")
    own = json.loads(box.call(*words)[1])["job"]["id"]
    async with agent(box.environ, *ALLOWED) as client:
        assert [each["id"] for each in (await told(client, "job_status"))["jobs"]] == [own]
    async with agent(box.environ, *ALLOWED, "--user-jobs-only") as client:
        for tool in ("job_status", "job_log", "stop_job"):
            assert (await error(client, tool, id=own))["code"] == "outside_limits"
        assert (await told(client, "job_status"))["jobs"] == []
        assert [each.uri for each in (await client.list_resources()).resources] == ["gputui://box"]
        job = (await told(client, "run_job", command=["true"], devices="none"))["job"]
        assert (await told(client, "job_status", id=job["id"], wait=30))["jobs"][0]["state"] == "done"
    assert {each.id: each.state for each in all_jobs(box.environ)}[own] == "running"


@each_row(
    "words",
    [
        ("--max-gpus", "2"),
        ("--allow-run", "--demo"),
        ("--allow-run", "--max-hours", "0"),
        ("--allow-run", "--max-hours", "nan"),
        ("--allow-run", "--max-gpus", "-1"),
        ("--root", "/"),
        ("--", "true"),
    ],
)
def test_a_limit_that_means_nothing_is_a_wrong_call(call: Call, words: tuple[str, ...]) -> None:
    call("mcp", *words).refused(2)


class Started(Exception):
    """A launch that would have been started."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self.launch = launch


SAID = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.text(), max_size=3),
)
ARGUMENTS = st.fixed_dictionaries(
    {"command": st.one_of(st.just(["python", "t.py"]), st.lists(st.text(max_size=9), max_size=4), SAID)},
    optional={
        "n": st.one_of(st.integers(-2, 12), SAID),
        "devices": st.one_of(
            st.lists(st.integers(0, 9), max_size=5).map(lambda all: ",".join(map(str, all))), SAID
        ),
        "hours": st.one_of(st.floats(0, 20), SAID),
        "min_free": st.one_of(st.sampled_from(["1G", "0", "-1", "9e99T"]), SAID),
        "env": st.one_of(
            st.dictionaries(st.sampled_from(["CUDA_VISIBLE_DEVICES", "A B", "X"]), st.text()), SAID
        ),
        "launcher": st.one_of(st.sampled_from(["torchrun", "python"]), SAID),
        "processes": st.one_of(st.integers(0, 9), SAID),
        "directory": SAID,
        "confine": SAID,
        "force": SAID,
        "time": SAID,
        "client": SAID,
    },
)


def launches(arguments: dict[str, Any], tools: Tools) -> list[Launch]:
    """The launches that a call would start; its failures have codes."""
    served = _Served(tools)
    try:
        check(arguments, served._offered["run_job"]["inputSchema"])
        tools.run_job(ToolCall("agent", print), **arguments)
    except Started as started:
        return [started.launch]
    except GputuiError as failure:
        jsonschema.Draft202012Validator(published("error")).validate(
            {
                "schema": 1,
                "error": {"code": failure.code, "message": str(failure), "remedy": None, "devices": []},
            }
        )
    return []


@pytest.fixture
def starts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def start(launch: Launch, *_: object) -> Job:
        raise Started(launch)

    monkeypatch.setattr("gputui.jobs.start.start_leased_job", start)
    monkeypatch.setattr(limits_module, "_devices_of_agents", lambda: 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def within_limits(arguments: dict[str, Any]) -> None:
    for launch in launches(arguments, Tools(True, Limits(3, 3600.0), demo="idle")):
        assert len(launch.devices) <= 2, "one of three is in use"
        assert launch.time_limit is not None and launch.time_limit <= 3600


@pytest.mark.usefixtures("starts_nothing")
@given(ARGUMENTS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_that_an_agent_says_leaves_the_limits(arguments: dict[str, Any]) -> None:
    within_limits(arguments)


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.usefixtures("starts_nothing")
@given(ARGUMENTS)
@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_that_an_agent_says_at_length_leaves_the_limits(arguments: dict[str, Any]) -> None:
    within_limits(arguments)


@pytest.mark.usefixtures("starts_nothing")
def test_a_launch_within_the_limits_is_started() -> None:
    (launch,) = launches({"command": ["t.py"], "n": 2}, Tools(True, Limits(3, 3600.0), demo="idle"))
    assert len(launch.devices) == 2 and launch.time_limit == 3600


@pytest.mark.usefixtures("starts_nothing")
@pytest.mark.parametrize("name", ["hours", "wait"])
def test_a_number_that_is_none_is_a_wrong_call(name: str) -> None:
    """NaN, which JSON lacks and its readers accept, is neither below nor above a bound."""
    asked = {"command": ["t.py"], name: math.nan}
    assert not launches(asked, Tools(True, Limits(3, 3600.0), demo="idle"))


# text


def test_text_reaches_an_agent_without_secrets_control_characters_and_in_bounds() -> None:
    token = "hf_" + "a1B2" * 9
    told = clean({"x": ["\x1b[31mred\x07", f"HF_TOKEN={token} python t.py", "y" * 9000], "n": None, "z": 1.5})
    assert told["x"][0] == "·[31mred·" and token not in told["x"][1]
    assert len(told["x"][2]) == 2001 and (told["n"], told["z"]) == (None, 1.5)
    assert len(clean([0] * 5000)) == 1000


@each_row("name", BOXES)
def test_what_is_made_harmless_is_still_as_the_schema_says(name: str) -> None:
    tools = Tools(False, Limits(), demo=name)
    for tool, schema in (("list_gpus", "ls"), ("queue", "queue")):
        document = clean(getattr(tools, tool)(ToolCall("agent", print)))
        jsonschema.Draft202012Validator(closed(published(schema))).validate(document)


@each_row(
    ("said", "name"),
    [
        ("my-agent", "my-agent"),
        ("", "agent"),
        (None, "agent"),
        ("\u202ex\n", "x"),
        ("a" * 99, "a" * 40),
    ],
)
def test_a_client_has_a_name_that_every_list_can_show(said: str | None, name: str) -> None:
    assert client_name(said) == name


async def test_a_secret_that_a_job_prints_does_not_reach_the_agent(box: Box) -> None:
    token = "hf_" + "a1B2" * 9
    script = f"print('token', '{token}'); print('\\x1b]0;title\\x07ok')"
    async with agent(box.environ, *ALLOWED) as client:
        asked = {"command": [sys.executable, "-c", script], "devices": "none"}
        job = (await told(client, "run_job", **asked))["job"]
        await told(client, "job_status", id=job["id"], wait=30)
        log = await told(client, "job_log", id=job["id"])
        text = (await client.read_resource(f"gputui://jobs/{job['id']}/log")).contents[0].text
        assert token not in json.dumps([job, log, text]) and log["lines"][1] == "ok"


def test_the_beginning_of_a_secret_does_not_reach_the_agent_where_a_text_is_cut() -> None:
    token = "hf_" + "a1B2" * 9
    told = clean(f"{'x' * 1979} {token} and so on")
    assert "***" in told and token[:6] not in told


# bad input, and clients that are gone


def message(**fields: Any) -> bytes:
    """A line of the protocol."""
    return json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n"


INITIALIZE = message(
    id=1,
    method="initialize",
    params={
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "gone", "version": "1"},
    },
)
WAITING = {"command": ["sleep", "600"], "wait": 600}


def started_server(box: Box, *words: str) -> subprocess.Popen[bytes]:
    """A server in a session of its own, whose client the test is."""
    start = server(box.environ, *words)
    return subprocess.Popen(
        [start.command, *start.args],
        env=box.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


async def test_bad_input_is_a_failure_with_a_code_and_the_server_goes_on(box: Box) -> None:
    async with agent(box.environ, *ALLOWED) as client:
        for tool, asked in (
            ("run_job", {"command": "python train.py"}),
            ("run_job", {"command": []}),
            ("run_job", {"command": ["x" * 10_000_000]}),
            ("run_job", {"command": ["true"], "force": True}),
            ("run_job", {"command": ["true"], "env": {"A B": "x"}}),
            ("run_job", {"command": ["true"], "n": 1.5}),
            ("job_status", {"wait": 5}),
            ("job_log", {"id": "x", "lines": -1}),
            ("list_gpus", {"links": "yes"}),
        ):
            found = await error(client, tool, **asked)
            assert found["code"] == "wrong_call" and len(found["message"]) < 500, (tool, found)
        for command in (["true\0"], ["/no/such/program"]):
            assert (await error(client, "run_job", command=command, devices="none"))["code"] == "cannot_start"
        with pytest.raises(MCPError):
            await client.call_tool("no_such_tool", {})
        assert (await told(client, "queue"))["held"] == []
    assert [each.state for each in all_jobs(box.environ)] in ([], ["failed"])


def test_input_that_is_no_protocol_ends_with_the_input(box: Box) -> None:
    for data in (b"", b"\xff\xfe\n{}\nnull\n[1]\n", b"[" * 200_000 + b"\n", b"x" * 1_000_000):
        done = subprocess.run(
            [sys.executable, "-m", "gputui", "mcp"],
            input=data,
            env=box.environ,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in done.stdout.splitlines())


@pytest.mark.thorough
def test_a_line_without_an_end_costs_no_more_memory_than_a_bounded_one(box: Box) -> None:
    """One of 200 MB took 500 MB."""

    def peak(megabytes: int) -> int:
        with started_server(box, "--demo") as process:
            assert process.stdin and process.stdout
            for _ in range(megabytes):
                process.stdin.write(b"x" * 10**6)
            process.stdin.write(b"\n" + INITIALIZE)
            process.stdin.flush()
            while b'"id":1' not in (line := process.stdout.readline()):
                assert line
            status = Path(f"/proc/{process.pid}/status").read_text()
            process.stdin.close()
            assert process.wait(60) == 0
        return int(status.partition("VmHWM:")[2].split()[0]) // 1024

    assert peak(100) - peak(0) < 100


@pytest.mark.parametrize(("streams", "status"), [("<&-", 2), (">&-", 2), (">/dev/full", 1)])
def test_where_no_client_can_be_is_one_line(box: Box, streams: str, status: int) -> None:
    words = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "gputui", "mcp", "--demo"]
    done = subprocess.run(words, input=INITIALIZE, env=box.environ, capture_output=True, timeout=60)
    assert done.returncode == status and done.stderr.count(b"\n") == 1


def test_ctrl_c_ends_the_server_at_once(box: Box) -> None:
    with started_server(box, "--demo") as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(INITIALIZE)
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == -signal.SIGINT and process.stderr.read() == b""
        finally:
            process.kill()


def test_a_client_that_no_longer_reads_ends_the_server_without_a_word(box: Box) -> None:
    with started_server(box, "--demo") as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.write(INITIALIZE)
        process.stdin.close()
        assert process.wait(60) in (0, 128 + 13) and process.stderr.read() == b""


async def test_two_clients_race_for_one_device_and_one_of_them_gets_it(box: Box) -> None:
    box.hold(*range(7))
    answers = dict[str, Any]()
    async with (
        agent(box.environ, *ALLOWED, name="one") as one,
        agent(box.environ, *ALLOWED, name="two") as two,
    ):

        async def ask(name: str, client: Any) -> None:
            answers[name] = await client.call_tool("run_job", {"command": sleeper()})

        async with anyio.create_task_group() as both:
            both.start_soon(ask, "one", one)
            both.start_soon(ask, "two", two)
    won = [name for name, answer in answers.items() if not answer.is_error]
    (lost,) = (answer.structured_content["error"] for answer in answers.values() if answer.is_error)
    assert len(won) == 1 and lost["code"] == "not_enough"
    assert {claim.client for claim in box.claims()} == {None, *won}


async def test_an_agent_waits_its_turn_and_hears_how_far_it_is(box: Box) -> None:
    holder = box.hold(*range(8))
    steps = list[str]()

    async def progress(*said: Any) -> None:
        steps.append(said[-1])
        (ticket,) = waiters(box.environ)
        assert ticket.client == "patient"
        holder.kill()

    async with agent(box.environ, *ALLOWED, name="patient") as client:
        asked = {"command": sleeper(), "n": 1, "wait": 60}
        answer = await client.call_tool("run_job", asked, progress_callback=progress)
        assert answer.structured_content["job"]["state"] == "running"
    assert steps and steps[0].startswith("first in line for 1 GPU: no GPU is free")


async def in_line(box: Box, client: Any, scope: anyio.CancelScope) -> None:
    """Wait for a device until the scope is cancelled."""

    async def progress(*_: object) -> None:
        assert waiters(box.environ), "it has a place in line"
        scope.cancel()

    with scope:
        await client.call_tool("run_job", {"command": sleeper(), "wait": 600}, progress_callback=progress)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_that_is_cancelled_leaves_the_line(box: Box, mode: str) -> None:
    box.hold(*range(8))
    async with agent(box.environ, *ALLOWED, mode=mode) as client:
        await in_line(box, client, anyio.CancelScope())
        with anyio.fail_after(120):
            while waiters(box.environ):
                await anyio.sleep(0.02)
        assert (await told(client, "queue"))["waiters"] == []
    assert all_jobs(box.environ) == []


@pytest.mark.parametrize("how", ["leaves", "is killed"])
def test_nothing_is_left_of_a_client_that_vanishes_in_the_middle_of_a_wait(box: Box, how: str) -> None:
    """Its server ends, its place in line goes, and no process is left; also where the server is killed."""
    box.hold(*range(8))
    with started_server(box, *ALLOWED) as process:
        assert process.stdin and process.stdout
        process.stdin.write(INITIALIZE + message(method="notifications/initialized"))
        process.stdin.write(
            message(id=2, method="tools/call", params={"name": "run_job", "arguments": WAITING})
        )
        process.stdin.flush()
        until(lambda: waiters(box.environ))
        (ticket,) = waiters(box.environ)
        assert ticket.client == "gone"
        if how == "is killed":
            process.kill()
        else:
            process.stdin.close()
        process.wait(30)
    until(lambda: not waiters(box.environ) and not _of_session(process.pid))
    assert all_jobs(box.environ) == []


def _of_session(leader: int) -> list[str]:
    """The processes of a session."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if place.name.isdigit() and fields[3] == str(leader):
            found.append(place.name)
    return found


def test_without_the_extra_the_call_says_what_installs_it(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "gputui.cli.mcp.server", raising=False)
    assert "gputui[mcp]" in call("mcp").refused(2)


def test_a_skill_says_how_an_agent_takes_a_gpu(call: Call) -> None:
    text = call("agent-skill").text
    assert text.startswith("---\nname: gputui\n") and "run_job" in text and "gputui run" in text
    assert os.linesep.join(text.splitlines()).isascii()
