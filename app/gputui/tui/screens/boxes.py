"""BoxesScreen: the boxes of the settings, over ssh, as groups of device rows that fold."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence

from gputui.choosing.verdict import Verdict, verdicts
from gputui.inventory.snapshot import Snapshot
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.system.users import own_name
from gputui.tui.main_view import MainView
from gputui.tui.screens.page import ListPage, cursor_bindings, shown
from gputui.tui.views.boxes import ShownBox, box_lines, headline
from gputui.tui.views.text import Line


class BoxesScreen(ListPage):
    """The connections are made when the page opens, and end with it."""

    BINDINGS = [
        shown("escape,q,O", "dismiss", "back", "esc"),
        *cursor_bindings("box"),
        shown("enter,space", "fold", "devices", "⏎", "Show or fold its devices"),
        shown("f", "only_free", "free anywhere", about="Only boxes with free devices, or all"),
    ]

    def __init__(self, view: MainView, channels: Channels) -> None:
        super().__init__(view)
        self._channels = channels
        self._unfolded: frozenset[str] = frozenset()
        self._only_free = False
        self._judged: dict[str, tuple[Snapshot, dict[str, Verdict]]] = {}
        self._all: list[ShownBox] = []

    def on_mount(self) -> None:
        self._channels.start()
        super().on_mount()

    def on_unmount(self) -> None:
        # (It waits for each of them a little.)
        threading.Thread(target=self._channels.stop, daemon=True).start()

    def item_keys(self) -> Sequence[Hashable]:
        self._all = [self._shown(state) for state in self._channels.states]
        return [box.state.alias for box in self._visible()]

    def lines(self, width: int, height: int) -> list[Line]:
        shown = self._visible()
        places = {box.state.alias: place for place, box in enumerate(shown)}
        found = box_lines(shown, self._unfolded, width)
        visible = self.window(
            [line for _, line in found], [places[alias] for alias, _ in found], max(1, height - 1), above=1
        )
        return [headline(self._all, self._only_free, width), *visible]

    def action_fold(self) -> None:
        if isinstance(self.key, str):
            self._unfolded ^= {self.key}
            self.draw()

    def action_only_free(self) -> None:
        self._only_free = not self._only_free
        self.draw()

    def _visible(self) -> list[ShownBox]:
        return [box for box in self._all if box.free or not self._only_free]

    def _shown(self, state: BoxState) -> ShownBox:
        snapshot = state.reading.snapshot if state.reading else None
        if snapshot is None:
            return ShownBox(state)
        kept = self._judged.get(state.alias)
        if kept is None or kept[0] is not snapshot:
            kept = self._judged[state.alias] = snapshot, verdicts(snapshot, self.view.app_state.rules)
        return ShownBox(state, kept[1], _mine(snapshot))


def _mine(snapshot: Snapshot) -> int:
    """How many of the devices we use or have claimed."""
    own, claimed = own_name(), snapshot.claimed
    return sum(
        (device.key in claimed and claimed[device.key].own)
        or any(process.user == own for process in device.processes or ())
        for device in snapshot.devices
    )
