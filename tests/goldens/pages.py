"""`python -m goldens.pages BOX DIR`: every page of the screen on a demo box, at three sizes, as text."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from goldens.boxes import stand_still

_SIZES = ((80, 24), (130, 40), (200, 60))
_PAGES: dict[str, tuple[str, ...]] = {
    "main": (),
    "best": ("@ask", "2", "enter"),
    "device": ("right",),
    "processes": ("p",),
    "topology": ("t",),
    "tree": ("t", "tab"),
    "launch": ("@launch_page",),
    "plan": ("@plan",),
    "export": ("@export",),
    "edit": ("e",),
    "timelines": ("@timelines",),
    "queue": ("@queue",),
    "people": ("@people",),
    "jobs": ("D",),
    "vary": ("D", "v"),
    "comparisons": ("D", "enter"),
    "messages": ("@messages",),
    "settings": ("@settings",),
    "columns": ("@columns",),
    "help": ("question_mark",),
    "palette": ("ctrl+p",),
    "nodes": ("@nodes",),
    "nodes-slurm": ("@nodes", "end", "up", "up"),
    "confirm": ("home", "space", "enter"),
    "enter": ("enter",),
}
"""The keys that open each page, from the main screen."""


async def _record(box: str, size: tuple[int, int], folder: Path) -> None:
    from goldens.masks import masked
    from tui.support import Session, session

    def text(s: Session) -> str:
        strips = s.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips) + "\n"

    async def steady(s: Session) -> str:
        """The page once it no longer changes."""
        seen = text(s)
        for _ in range(50):
            await asyncio.sleep(0.05)
            await s.settle()
            now = text(s)
            if now == seen and not s.main.plans.reading:
                return now
            seen = now
        return seen

    for name, keys in _PAGES.items():
        environ = {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"], "HOME": os.environ["HOME"]}
        async with session(box, environ=environ, size=size, interval=1000) as s:
            for key in keys:
                await s.press(key)
            shown = masked(await steady(s)) if s.app.is_running else "ended\n"
        (folder / f"{name}-{size[0]}x{size[1]}").write_text(shown)


def main() -> None:
    box, folder = sys.argv[1], Path(sys.argv[2]) / "pages" / sys.argv[1]
    folder.mkdir(parents=True)
    os.chdir(os.environ["HOME"])
    stand_still()
    from goldens.records import leave

    leave(Path(os.environ["XDG_STATE_HOME"]))
    for size in _SIZES:
        asyncio.run(_record(box, size, folder))


if __name__ == "__main__":
    main()
