"""`python -m screen_fuzz` (in tests/): random keys, pastes, clicks and sizes on boxes that change under them.

It looks for exceptions, on any thread, and prints the last actions before one. `--seed S` repeats a run
except for effects of time. Launches are real, of `true`, in a home folder of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from textual import events
from textual.geometry import Size
from textual.keys import _character_to_key

from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.source import NoSourceError, Want
from gputui.tui.actions import ACTIONS
from tui.support import Session, StillSource, box_at, release_leases, session

_NAMED = (
    *("space", "tab", "shift+tab", "escape", "enter", "backspace", "delete", "f1", "ctrl+p", "ctrl+z"),
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "shift+up", "shift+down"),
    *("ctrl+a", "ctrl+u", "ctrl+w"),
)
_SIGNS = "abBnoteluwDvJKjkgGs/fxcCipdr?yY0123456789+-=[]<>,.;:!#%&()*^~|"
_TEXT = "אבגד漢字🙂e\u0301\u202e\u200b\u0000\x1b\x9b[red][/red][@click=x]{}$\\\"'`\n\t 4 8 tp=2 free .* ( ["
_STRANGE = (
    "[red]x[/]",
    "[/]",
    "\x1b]0;owned\x07",
    "שלום עולם" * 30,
    "漢字" * 200,
    "e\u0301" * 300,
    "👩‍👩‍👧‍👦" * 40,
    "x" * 5000,
    "\u202eevil\u2066",
    "a\nb\tc",
    "\ud800",
    "",
    " ",
)


class _MovingBox(StillSource):
    """A box whose devices, processes, names and clock change from one reading to the next."""

    def __init__(self, name: str, dice: random.Random) -> None:
        super().__init__(box_at(name))
        self._name, self._dice = name, dice
        self._elapsed = 0.0

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        dice = self._dice
        if dice.random() < 0.03:
            raise NoSourceError(dice.choice(_STRANGE) or "gone")
        self._elapsed += dice.choice((0.0, 0.25, 1.0, 60.0, 3600.0, -30.0, -7200.0))
        found = box_at(self._name, max(0.0, self._elapsed))
        rows = [n for n in range(len(found.devices)) if dice.random() > 0.1]
        if dice.random() < 0.05:
            rows = []
        # A change may remove the name that identifies a device.
        devices = [self._changed(found.devices[n]) for n in rows]
        links, pcie, peers = (
            tuple(tuple(each[a][b] for b in rows) for a in rows) if each else each
            for each in (found.links, found.pcie, found.peers)
        )
        wiring = found.topology and replace(
            found.topology, localities=tuple(found.topology.localities[a] for a in rows)
        )
        line = tuple(self._waiter(place, devices) for place in range(dice.choice((0, 0, 1, 5, 40))))
        return replace(
            found, devices=tuple(devices), links=links, pcie=pcie, peers=peers, topology=wiring, waiters=line
        )

    def _changed(self, device: Device) -> Device:
        dice = self._dice
        if dice.random() < 0.2:
            unknown = dice.sample(
                ["utilization", "memory_used", "memory_free", "memory_total", "power", "power_limit",
                 "temperature", "name", "processes", "memory_utilization", "numa_node", "pci_bus_id"],
                4,
            )  # fmt: skip
            device = replace(device, **dict.fromkeys(unknown))
        if dice.random() < 0.1:
            device = replace(device, name=dice.choice(_STRANGE))
        if dice.random() < 0.05:
            device = replace(device, temperature=10**9, power=1e9, utilization=10**6)
        if device.processes and dice.random() < 0.3:
            strange = tuple(
                replace(each, command=dice.choice(_STRANGE), user=dice.choice((*_STRANGE, None)))
                for each in device.processes
            )
            device = replace(device, processes=strange)
        return device

    def _waiter(self, place: int, devices: list[Device]) -> Waiter:
        dice = self._dice
        wanted = frozenset(d.key for d in devices if dice.random() < 0.5) if dice.random() < 0.5 else None
        return Waiter(
            (place, ""),
            dice.choice(_STRANGE),
            dice.choice((1, 2, 9999)),
            wanted,
            dice.choice((None, 1.0, 9e10)),
            dice.choice((None, *_STRANGE)),
            step=dice.choice((0, 0, 1)),
            ours=dice.random() < 0.3,
        )


class _Abuse:
    """Random actions on one run of the screen."""

    def __init__(self, running: Session, dice: random.Random, done: deque[str]) -> None:
        self._s, self._dice, self._done = running, dice, done

    async def act(self) -> None:
        dice, app = self._dice, self._s.app
        width, height = app.size
        kind = dice.choices(
            ("key", "action", "text", "paste", "mouse", "resize", "leave"), (50, 10, 8, 2, 20, 6, 3)
        )[0]
        if kind == "key":
            key = dice.choice([*_NAMED, *_SIGNS, *_SIGNS])
            self._note(f"press {key!r}")
            self._press(key)
        elif kind == "action":
            words = dice.choice(ACTIONS).query
            self._note(f"choose {words!r}")
            for sign in f":{words}":
                self._press("space" if sign == " " else sign)
            self._press("enter")
        elif kind == "text":
            text = "".join(dice.choices(_TEXT, k=dice.randint(1, 8)))
            self._note(f"type {text!r}")
            for sign in text:
                self._press(sign)
        elif kind == "paste":
            text = dice.choice(_STRANGE)
            self._note(f"paste {text[:20]!r}")
            app.post_message(events.Paste(text))
        elif kind == "mouse":
            self._mouse(dice.randrange(max(1, width)), dice.randrange(max(1, height)))
        elif kind == "resize":
            for _ in range(dice.choice((1, 1, 20))):
                size = dice.choice((1, 2, 10, 39, 80, 130, 240)), dice.choice((1, 2, 3, 6, 10, 24, 60))
                self._note(f"resize {size}")
                self._s.app._driver._size = Size(*size)  # type: ignore[union-attr]
                self._s.app.post_message(events.Resize(Size(*size), Size(*size)))
        else:
            self._note("escape ×3")
            for _ in range(3):
                self._press("escape")
        await asyncio.sleep(0.002)

    def _press(self, key: str) -> None:
        # Without the pilot, which waits for a complete paint after each key.
        character = key if len(key) == 1 else {"space": " ", "tab": "\t", "enter": "\r"}.get(key)
        self._s.app.post_message(events.Key(_character_to_key(key) if len(key) == 1 else key, character))

    def _mouse(self, x: int, y: int) -> None:
        dice = self._dice
        if not self._s.app.screen_stack:
            return
        kinds: list[type[events.MouseEvent]] = dice.choice(
            [
                [events.MouseDown, events.MouseUp],
                [events.MouseMove],
                [events.MouseScrollDown],
                [events.MouseScrollUp],
                [events.MouseDown, events.MouseMove, events.MouseMove, events.MouseUp],
            ]
        )
        button = dice.choice((1, 1, 2, 3))
        for kind in kinds:
            self._note(f"{kind.__name__} {x},{y} button {button}")
            self._s.app.screen._forward_event(
                kind(None, x, y, 0, 0, button, dice.random() < 0.1, False, False, x, y)
            )
            if kind is events.MouseMove:
                x, y = max(0, x + dice.randint(-9, 9)), max(0, y + dice.randint(-3, 3))

    def _note(self, what: str) -> None:
        self._done.append(f"{type(self._s.app.screen).__name__}: {what}")


async def _round(dice: random.Random, done: deque[str], until: float, wrong: list[str]) -> int:
    name, steps = dice.choice(list(BOXES)), 0
    command = dice.choice(
        [("true",), ("torchrun", "x.py"), ("python", "[red].py"), ("torchrun", "x.py", "--model", "8B"), ()]
    )
    done.append(f"-- box {name}, command {command}")
    source = _MovingBox(name, dice)
    size = dice.choice(((80, 24), (130, 40), (240, 60)))
    async with session(source.snapshot, command, size=size, source=source, interval=0.05) as running:
        abuse = _Abuse(running, dice, done)
        while running.app.is_running and time.monotonic() < until and steps < 400 and not wrong:
            await abuse.act()
            steps += 1
    release_leases()
    return steps


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m screen_fuzz", description=__doc__)
    options.add_argument("--seed", type=int, default=None)
    options.add_argument("--seconds", type=float, default=60.0)
    given = options.parse_args()
    seed = random.randrange(10**6) if given.seed is None else given.seed
    dice, done, steps = random.Random(seed), deque[str](maxlen=60), 0
    wrong: list[str] = []

    def on_a_thread(error: threading.ExceptHookArgs) -> None:
        wrong.append(
            "".join(traceback.format_exception(error.exc_type, error.exc_value, error.exc_traceback))
        )

    threading.excepthook = on_a_thread
    with tempfile.TemporaryDirectory(prefix="gputui-screen-fuzz-") as folder:
        os.chdir(folder)
        claims = Path(folder, "claims")
        claims.mkdir()
        claims.chmod(0o1777)
        os.environ.update(HOME=folder, GPUTUI_CLAIMS=str(claims))
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ.pop(name, None)
        until = time.monotonic() + given.seconds
        while time.monotonic() < until and not wrong:
            try:
                steps += asyncio.run(_round(dice, done, until, wrong))
            except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
                wrong.append(traceback.format_exc())
    print(f"seed {seed}: {steps} steps")
    if wrong:
        print("\n".join(done), *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
