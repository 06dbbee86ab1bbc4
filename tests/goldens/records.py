"""Records of jobs, of a comparison and of a sweep, as gputui 0.1.0 leaves them in the state folder.

They are written here as JSON and not by gputui's own classes: any later version must read the records on the
disk.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from goldens.boxes import MOMENT

_LOG = """step 100  loss 2.41
epoch 1:  12%|#2        | 214/1780 [09:12<1:07:21]\repoch 1:  13%|#3        | 231/1780 [09:56<1:06:40]"""
_SCOPE = {"host": "another", "boot": None, "pids": None}


def leave(state: Path) -> None:
    """Write all records below the state folder."""
    jobs = state / "gputui" / "jobs"
    _job(jobs / "c4m8", "python eval.py --split test", 9000.0, 0)
    _job(jobs / "k3f9", "python finetune.py --config long.yaml", 3000.0, 1)
    _write(state / "gputui" / "comparisons" / "r8c4" / "comparison.json", _comparison())
    _write(state / "gputui" / "sweeps" / "z5v4" / "sweep.json", _sweep())
    _write(state / "gputui" / "sweeps" / "b7d2" / "sweep.json", {"schema": 9})


def _write(file: Path, document: object) -> None:
    file.parent.mkdir(0o700, parents=True)
    file.write_text(json.dumps(document))


def _ago(seconds: float) -> str:
    return datetime.fromtimestamp(MOMENT - seconds, timezone.utc).isoformat()


def _job(folder: Path, line: str, ago: float, status: int) -> None:
    device = {"index": 1, "uuid": "GPU-11111111-1111-1111-1111-111111111111", "name": "H100"}
    who = {"pid": 4_000_000, "ticks": 1}
    created = MOMENT - ago
    job = {
        "schema": 1, "name": None, "line": line, "argv": line.split(), "changes": [], "directory": None,
        "devices": [device], "launcher": "python", "user": "mira", **_SCOPE, "starter": who,
        "created": created, "waits": None, "launch": None, "withheld": [],
    }  # fmt: skip
    _write(folder / "job.json", job)
    (folder / "started.json").write_text(json.dumps({"supervisor": who, "command": who, "started": created}))
    (folder / "ended.json").write_text(json.dumps({"ended": created + 540.0, "status": status}))
    (folder / "log").write_text(_LOG)


def _comparison() -> dict[str, Any]:
    variants = []
    for launcher, denied, runtime in (
        ("python", "0", 110.5948),
        ("torchrun", "0", 101.9003),
        ("torchrun", "1", 131.4367),
    ):
        run = {
            "round": 1, "job": "k3f9", "state": "done", "status": 0, "reason": None, "wall": runtime + 9.4,
            "runtime": runtime, "steps_per_second": 200 / runtime, "metric": None,
            "peak_memory": 15_247_133_901, "utilization": 9700 / runtime,
        }  # fmt: skip
        variants.append(
            {
                "values": [launcher, denied],
                "label": f"launcher={launcher} NCCL_P2P_DISABLE={denied}",
                "command": [],
                "launch": f"NCCL_P2P_DISABLE={denied} {launcher} train.py",
                "devices": ["4", "5"],
                "runs": [run],
            }
        )
    return {
        "schema": 1, "state": "done", "created": _ago(3700), "ended": _ago(3300), "directory": "",
        "request": _request("comparison", "train.py", "--lr", "3e-4"), "devices": ["4", "5"],
        "axes": [["launcher", "launcher"], ["env:NCCL_P2P_DISABLE", "NCCL_P2P_DISABLE"]],
        "rows": variants, "withheld": [],
    }  # fmt: skip


def _request(kind: str, *command: str) -> dict[str, Any]:
    return {"kind": kind, "launch": {"options": {"command": command}}}


def _sweep() -> dict[str, Any]:
    tasks = []
    for rate, state, status in (
        ("0.1", "done", 0),
        ("0.01", "failed", 3),
        ("0.001", "stopped", None),
        ("1", "waiting", None),
    ):
        run = {
            "round": 1, "job": "k3f9", "state": state, "status": status, "wall": 20.0, "attempts": 1,
            "started": _ago(3000), "ended": _ago(2980),
        }  # fmt: skip
        tasks.append(
            {
                "label": f"--lr={rate}", "command": ["python", "train.py", f"--lr={rate}"], "values": [],
                "devices": [] if state == "waiting" else ["4"], "launch": "",
                "runs": [] if state == "waiting" else [run],
            }
        )  # fmt: skip
    return {
        "schema": 1, "state": "stopped", "created": _ago(3100), "ended": _ago(2900), "directory": "/",
        "request": _request("sweep"), "devices": [], "axes": [], "rows": tasks, "withheld": [],
    }  # fmt: skip
