"""A client of the Debug Adapter Protocol, like an editor, for the configurations of a launch.json."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE = 60.0


@dataclass
class Session:
    """One debugging session over the stdin and stdout of debugpy's adapter."""

    adapter: subprocess.Popen[bytes]
    messages: queue.Queue[dict[str, Any] | None] = field(default_factory=queue.Queue)
    seen: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0

    def read(self) -> None:
        """Read messages until the adapter closes its output."""
        assert self.adapter.stdout
        while header := self.adapter.stdout.readline():
            length = int(header.partition(b":")[2])
            while self.adapter.stdout.readline().strip():
                pass
            self.messages.put(json.loads(self.adapter.stdout.read(length)))
        self.messages.put(None)

    def send(self, command: str, **arguments: Any) -> None:
        """Send a request without waiting for its response."""
        assert self.adapter.stdin
        self.sent += 1
        body = json.dumps(
            {"seq": self.sent, "type": "request", "command": command, "arguments": arguments}
        ).encode()
        self.adapter.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.adapter.stdin.flush()

    def until(self, kind: str, name: str) -> dict[str, Any]:
        """Wait for the event, or the response, of that name."""
        while True:
            message = self.messages.get(timeout=PATIENCE)
            assert message is not None, ("the adapter has ended", self.seen)
            self.seen.append(message)
            assert message.get("success", True), message
            if message["type"] == kind and message.get("event", message.get("command")) == name:
                return message


def debug(configuration: Mapping[str, Any], environ: Mapping[str, str], workspace: Path) -> int | None:
    """Run the configuration in the debugger to its end; return the program's exit status.

    This function does the earlier work of an editor: it inserts the workspace's folder. It has no terminal to
    offer, so that the console is debugpy's own.
    """
    text = json.dumps({**configuration, "console": "internalConsole"})
    arguments = json.loads(text.replace("${workspaceFolder}", json.dumps(str(workspace))[1:-1]))
    with subprocess.Popen(
        [sys.executable, "-m", "debugpy.adapter"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1", "PATH": os.environ["PATH"]},
        cwd=workspace,
    ) as adapter:
        session = Session(adapter)
        reader = threading.Thread(target=session.read, daemon=True)
        reader.start()
        try:
            session.send("initialize", clientID="test", adapterID="debugpy", pathFormat="path")
            session.until("response", "initialize")
            session.send("launch", **arguments)
            session.until("event", "initialized")
            session.send("configurationDone")
            status = session.until("event", "exited")["body"]["exitCode"]
            session.until("event", "terminated")
            session.send("disconnect")
        finally:
            adapter.kill()
            reader.join(PATIENCE)
    return int(status)
