"""Imports asyncio as a Python without OpenSSL does: this saves 4 MiB and 15 ms. gputui uses no TLS."""

from __future__ import annotations

import sys


def import_asyncio() -> None:
    """Import asyncio without `ssl`, unless either is imported already; `import ssl` still works later."""
    if "ssl" in sys.modules or "asyncio" in sys.modules:
        return
    # None makes the import fail, and asyncio handles that failure.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]
