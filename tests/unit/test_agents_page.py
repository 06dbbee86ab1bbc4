"""docs/agents.md: its transcript is made by the protocol's own client, and its example runs.

`GPUTUI_RECORD=1 pytest tests/unit/test_agents_page.py` writes the transcript anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputui.jobs.store import all_jobs
from unit.claims_support import Box

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
EXAMPLE = PAGE.parent / "examples" / "agent_loop.py"
RECORDS = "GPUTUI_RECORD" in os.environ
TRANSCRIPT = re.compile(r"(?<=<!-- transcript -->\n```\n).*?(?=```\n)", re.DOTALL)
TRAINING = """
import os, sys, time
print("Loading...", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
for step in range(600):
    print("step", step, "loss", 1 / (step + 1), flush=True)
    time.sleep(0.05)
"""
WAITING = "import time; print('step 0 loss 1.0', flush=True); time.sleep(600)"

pytestmark = pytest.mark.usefixtures("jobs_at_once")

KEYS: dict[str, Any] = {
    "list_gpus": {"devices": {"index", "memory_free", "verdict"}},
    "plan_training": {"strategies": {"name", "devices", "fits", "reason"}},
    "run_job": {"job": {"id", "state", "devices", "client", "time_limit", "until"}},
    "job_status": {"jobs": {"id", "state", "client", "status", "reason"}},
    "stop_job": {"jobs": {"id", "state", "client", "status", "reason"}},
    "job_log": None,
    "queue": {"waiters": {"place", "client"}, "held": {"uuid", "client", "until"}},
}
"""The keys of each document that the transcript has."""


def brief(document: dict[str, Any], tool: str) -> str:
    """What the transcript has of a document: of a list the first and the last item."""
    if "error" in document:
        told: Any = {"error": {**document["error"], "devices": ["…"] * bool(document["error"]["devices"])}}
    elif KEYS[tool] is None:
        told = {key: document[key] for key in ("id", "state", "lines")}
    else:
        told = {}
        for key, names in KEYS[tool].items():
            found = document[key]
            rows = [found] if isinstance(found, dict) else found
            few = [{name: row[name] for name in row if name in names} for row in rows]
            few = few if len(few) < 3 else [few[0], "…", *few[-1:] * (key != "strategies")]
            told[key] = few[0] if isinstance(found, dict) else few
    return json.dumps(told, ensure_ascii=False)


def steady(text: str, ids: list[str]) -> str:
    """The transcript without what differs from run to run."""
    for place, id in enumerate(ids):
        text = text.replace(id, ("k3f9", "m6u5")[place])
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", "2026-06-01T12:00:00.000+00:00", text)
    return re.sub(r"by you, \d+s ago", "by you, 1s ago", text)


async def recorded(box: Box) -> str:
    from agents import ALLOWED, agent

    holder = box.hold(*range(7))
    lines, ids = list[str](), list[str]()
    async with agent(box.environ, *ALLOWED, name="my-agent") as client:
        listed = (await client.list_tools()).tools
        lines += ["→ tools/list", f"← {', '.join(tool.name for tool in listed)}"]

        async def call(tool: str, /, **asked: Any) -> dict[str, Any]:
            steps = list[str]()

            async def progress(*said: Any) -> None:
                steps.append(said[-1])
                if tool == "run_job":
                    holder.kill()

            shown = [word if len(word) < 20 else "train.py" for word in asked.get("command", [])]
            shown = ["python", "train.py"] if shown else shown
            told = {**asked, **({"command": shown} if shown else {})}
            lines.append(f"→ {tool} {json.dumps(told)}")
            answer = await client.call_tool(tool, asked, progress_callback=progress)
            lines.extend(f"  {step}" for step in steps[:1])
            lines.append(f"← {'isError ' if answer.is_error else ''}{brief(answer.structured_content, tool)}")
            found: dict[str, Any] = answer.structured_content
            return found

        command = [sys.executable, "-c", WAITING]
        await call("list_gpus")
        await call("plan_training", parameters="13B", n=2)
        await call("run_job", command=command, n=3, hours=1)
        await call("run_job", command=command, n=2, hours=1)
        job = (await call("run_job", command=command, n=2, hours=1, wait=600))["job"]["id"]
        ids.append(job)
        while not (await client.call_tool("job_log", {"id": job})).structured_content["lines"]:
            pass
        await call("queue")
        await call("job_status", id=job, wait=0.1)
        await call("job_log", id=job, lines=5)
        await call("stop_job", id=job)
    return steady("\n".join(lines) + "\n", ids)


async def test_the_transcript_is_what_an_agent_sees(box: Box) -> None:
    pytest.importorskip("mcp", reason="the extra gputui[mcp] is not installed")
    made = await recorded(box)
    if RECORDS:
        PAGE.write_text(TRANSCRIPT.sub(lambda _: made, PAGE.read_text(), count=1))
    found = TRANSCRIPT.search(PAGE.read_text())
    assert found is not None and found[0] == made


def test_the_example_finds_a_plan_and_starts_follows_and_stops_a_job(box: Box) -> None:
    """The log has lines that end with no number, too."""
    loaded = box.folder / "loaded"
    command = [sys.executable, "-c", TRAINING, str(loaded)]
    with subprocess.Popen(
        [sys.executable, "-W", "error", str(EXAMPLE), "1B", "0.2", *command],
        env=box.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        shown = next(line for line in process.stdout if line.endswith(" Loading...\n"))
        loaded.touch()
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    (job,) = all_jobs(box.environ)
    assert shown.startswith(job.id) and job.time_limit == 3600
    assert out.splitlines()[-1] == f"job {job.id} stopped"


def test_the_example_says_what_helps_where_no_device_is_there(box: Box) -> None:
    words = [sys.executable, str(EXAMPLE), "9000B", "0.2", "true"]
    done = subprocess.run(words, env=box.environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and done.stderr and "Traceback" not in done.stderr
