"""`gputui metrics --serve`: the standard library's HTTP server, with limits, for Prometheus.

Any client that reaches the address can open many connections, so the oldest connection is closed when there
are too many: a scrape, which takes milliseconds, is answered despite any number of slow clients. The host
name of a web page can resolve to this address (DNS rebinding), so a request for another name is refused.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from gputui.cli.common import WrongCallError, say, warn
from gputui.inventory.errors import reason_of
from gputui.sources.source import NoSourceError

FRESH = 1.0
"""Seconds for which one reading is cached for all scrapes."""
_PATIENCE = 10.0
"""Timeout in seconds of a scrape that waits for the reading of another scrape."""
_LONGEST = 30.0
"""The longest duration of a connection in seconds."""
_MOST, _MOST_OF_ONE = 16, 4
"""The most connections at once, and the most from one address."""
_REST = 0.003
"""Seconds between two connections where others are open: an answer takes one."""
_MOST_HEAD = 16 * 1024
"""The most bytes of a request: sixteen requests of the standard library's limit, 6 MB, took 500 MB."""
_OPENMETRICS = "application/openmetrics-text"


class _Shared:
    """One reading for all scrapes within a second."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._reading = threading.Lock()
        self._last = b""
        self._at = float("-inf")

    def text(self) -> bytes:
        """Return the text. Raises NoSourceError, also where another reading does not return in time."""
        if not self._reading.acquire(timeout=_PATIENCE):
            raise NoSourceError("the driver does not answer")
        try:
            if time.monotonic() - self._at >= FRESH:
                self._last = self._text().encode()
                self._at = time.monotonic()
            return self._last
        finally:
            self._reading.release()


class _Head(io.BufferedReader):
    """The input of a connection: one request, which has only a head."""

    _left = _MOST_HEAD

    def readline(self, size: int | None = None, /) -> bytes:
        """Read a line. Raises ConnectionError where the head is too long."""
        line = super().readline(self._left)
        self._left -= len(line)
        if not self._left:
            raise ConnectionError
        return line


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "gputui", ""

    def setup(self) -> None:
        super().setup()
        self.rfile = _Head(self.connection.makefile("rb", 0))

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        kind, status = "text/plain; charset=utf-8", 200
        if not self._is_for_us():
            status, body = 421, b"the Host of this request is not the address that is served\n"
        elif self.path.partition("?")[0] not in ("/", "/metrics"):
            status, body = 404, b"/metrics\n"
        else:
            try:
                body = self.server.shared.text()
                kind = "text/plain; version=0.0.4; charset=utf-8"
                if _OPENMETRICS in self.headers.get("Accept", ""):
                    kind = f"{_OPENMETRICS}; version=1.0.0; charset=utf-8"
            except NoSourceError as error:
                status, body = 503, f"{error}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _is_for_us(self) -> bool:
        """Whether the Host header names this server, with any port (`ssh -L`). HTTP/1.0 may have no Host."""
        named = self.headers.get("Host")
        if named is None:
            return True
        own = self.connection.getsockname()[0].removeprefix("::ffff:").partition("%")[0]
        names = {own, self.server.named, socket.gethostname().lower()}
        if ipaddress.ip_address(own).is_loopback:
            names.add("localhost")
        try:
            return urlsplit(f"//{named}").hostname in names
        except ValueError:
            return False

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: there is a scrape every few seconds."""


class Server(ThreadingHTTPServer):
    """Answer a bounded number of connections, each in a thread that ends with the program."""

    daemon_threads = True
    block_on_close = False
    # Each connection beyond these that nobody has accepted yet begins again a second later, a scrape's too.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], text: Callable[[], str]) -> None:
        self.shared = _Shared(text)
        self.named = address[0].lower()
        self._open: dict[socket.socket, tuple[str, float]] = {}
        """The address and the deadline of each connection, the oldest first."""
        self._places = threading.BoundedSemaphore(2 * _MOST)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def service_actions(self) -> None:
        """Close the connections whose deadline has passed."""
        now = time.monotonic()
        for request, (_, until) in tuple(self._open.items()):
            if now >= until:
                self._end(request)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._open) >= _MOST_OF_ONE:
            # Whoever has sent a request is answered meanwhile, and not closed as the oldest.
            time.sleep(_REST)
        whose = client_address[0]
        everybody = tuple(self._open.items())
        theirs = [each for each, (address, _) in everybody if address == whose]
        if len(theirs) >= _MOST_OF_ONE:
            self._end(theirs[0])
        elif len(everybody) >= _MOST:
            self._end(everybody[0][0])
        # The thread of a closed connection may still wait for a reading.
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._open[request] = whose, time.monotonic() + _LONGEST
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def _end(self, request: socket.socket) -> None:
        self._open.pop(request, None)
        with contextlib.suppress(OSError):
            # Its thread, which may block on sending or receiving, closes the socket.
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has disconnected or is too slow; any other error is a defect."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def server_bind(self) -> None:
        # HTTPServer's own method looks the address up in the DNS, which can take long.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


def serve(address: tuple[str, int], text: Callable[[], str]) -> int:
    """Serve until Ctrl-C, which is raised. Raises WrongCallError where the address cannot be bound."""
    try:
        server = Server(address, text)
    except OSError as error:
        raise WrongCallError(f"cannot serve on {address[0]}:{address[1]}: {reason_of(error)}") from None
    with server:
        host = str(server.server_address[0])
        shown = f"[{host}]" if ":" in host else host
        say(f"serving http://{shown}:{server.server_address[1]}/metrics")
        if not ipaddress.ip_address(host).is_loopback:
            warn("other machines can read this, user names included, without a password")
        _until_ctrl_c(server)
    return 0


def _until_ctrl_c(server: Server) -> None:
    """Serve until Ctrl-C, and raise KeyboardInterrupt after the loop. Raised at an arbitrary point, it would
    be lost where Python ignores exceptions: in the callback of a weak reference to a thread that has
    ended."""
    interrupted = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        interrupted.set()
        # shutdown() blocks until the loop has ended.
        threading.Thread(target=server.shutdown, daemon=True).start()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted.is_set():
        raise KeyboardInterrupt
