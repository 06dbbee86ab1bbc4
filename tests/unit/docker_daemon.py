"""A docker daemon that refuses every request and records it: it shows what the real client parsed."""

from __future__ import annotations

import json
import os
import pty
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any


@dataclass
class Daemon:
    """The daemon's socket, and the containers that clients asked it to create."""

    socket: Path
    asked: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def run(self, line: bytes) -> dict[str, Any]:
        """Run a line of sh at a terminal, and return the container that the real docker asks for."""
        outer, inner = pty.openpty()
        before = len(self.asked)
        try:
            done = subprocess.run(
                ["sh", "-c", line],
                stdin=inner,
                capture_output=True,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.socket.parent),
                    "DOCKER_HOST": f"unix://{self.socket}",
                },
                timeout=60,
                check=False,
            )
        finally:
            os.close(outer)
            os.close(inner)
        assert b"seen and refused" in done.stderr, done.stderr
        assert len(self.asked) == before + 1
        return self.asked[-1]


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextmanager
def daemon(folder: Path) -> Iterator[Daemon]:
    """A daemon that listens on a socket in the folder."""
    made = Daemon(folder / "docker.sock")

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            """Log nothing: stderr belongs to the test."""

        def address_string(self) -> str:
            return "a socket"

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Api-Version", "1.43")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self._answer(200, b"OK")

        do_GET = do_HEAD

        def do_POST(self) -> None:
            made.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(400, b'{"message":"seen and refused"}')

    with _Server(str(made.socket), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
