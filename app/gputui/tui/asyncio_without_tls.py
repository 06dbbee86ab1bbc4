"""Imports asyncio as on a Python without OpenSSL: 4 MiB and 15 ms less. Nothing here speaks TLS."""

from __future__ import annotations

import sys


def import_asyncio() -> None:
    """Import asyncio without `ssl`, unless either is there already; `import ssl` works as ever afterwards."""
    if "ssl" in sys.modules or "asyncio" in sys.modules:
        return
    # (None makes an import fail, which asyncio is written for.)
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]
