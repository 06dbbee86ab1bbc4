"""Nodes: the nodes of one kind on the page of nodes, and what can be done with the one at the cursor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from gputui.launching.launch import Launch
from gputui.requesting.launch_request import LaunchRequest
from gputui.system.environment import Environ
from gputui.tui.background import in_background
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.main_view import MainView
from gputui.tui.views.nodes import Node
from gputui.tui.views.text import Line

Launched = TypeVar("Launched", Launch, LaunchRequest)

NO_COMMAND = "no command yet: press e to type one"


class Nodes(ABC, Generic[Launched]):
    """The nodes of one kind.

    key       the row at the cursor, None where that is a node of another kind
    moved_to  the row to which the cursor shall move, until the page has followed
    free      how many devices are free, for each node that `nodes` has read
    does      the actions that these nodes have: functions by the names that the page's bindings use
    """

    def __init__(self, view: MainView, launch: LaunchController, environ: Environ) -> None:
        self.view, self._launch, self._environ = view, launch, environ
        self.key: Hashable | None = None
        self.moved_to: Hashable | None = None
        self.free: Sequence[int] = ()
        self.does: Mapping[str, Callable[..., object]] = {}

    @abstractmethod
    def begin(self) -> None:
        """Begin to read: the page opens."""

    @abstractmethod
    def end(self) -> None:
        """End what `begin` has begun: the page has closed."""

    @abstractmethod
    def nodes(self) -> list[Node]:
        """The nodes as they are now."""

    @property
    def awaited(self) -> int:
        """How many nodes have not answered yet."""
        return 0

    def do(self, action: str, *given: object) -> None:
        """Do one of the actions."""
        self.does[action](*given)

    def can(self, action: str) -> bool:
        """Whether the row at the cursor has the action."""
        return action in self.does

    def hints(self, action: str) -> bool:
        """Whether the last line names the key of the action."""
        return self.can(action)

    @abstractmethod
    def launch(self, width: int, room: int) -> list[Line]:
        """The launch at the cursor; where it cannot start, in `room` lines if possible."""

    def jobs(self, width: int) -> list[Line]:
        """The user's jobs that have no page of their own."""
        return []

    @abstractmethod
    def launched(self, starts: bool) -> Launched | str:
        """The launch at the cursor, to be copied or started now; a message where something is
        missing."""

    @abstractmethod
    def line(self, launched: Launched) -> str:
        """The launch as it is shown and copied."""

    def _launched(self, starts: bool = True) -> Launched | None:
        """The launch; None where it cannot start now, or be copied. Then a message says why not, or
        the user types the missing command."""
        launched = self.launched(starts)
        if launched == NO_COMMAND and starts:
            self._launch.edit()
        elif isinstance(launched, str):
            self.view.show_message(launched, "warn")
        elif not (starts and self._simulated()):
            return launched
        return None

    def _copy(self) -> None:
        launched = self._launched(starts=False)
        if launched is not None:
            self._launch.copy_text(self.line(launched))

    def _simulated(self, what: str = "these nodes are simulated, and nothing is started") -> bool:
        """Whether this is a demo, where the nodes are simulated; if so, show a message."""
        label = self.view.app_state.label
        if label:
            self.view.show_message(f"{label}: {what}", "warn")
        return bool(label)

    def _background(
        self, text: str, call: Callable[[], tuple[str, bool]], done: Callable[[bool], object]
    ) -> None:
        """Make a call in the background and show its message; `done` receives whether it succeeded."""
        app = self.view.app
        self.view.show_message(text, kind="passing")

        def told(text: str, good: bool) -> None:
            done(good)
            self.view.show_message(text, "" if good else "lost", kind="news")
            self.view.redraw_page()

        in_background("a call about another node", lambda: app.call_later(told, *call()))

    def _in_terminal(self, launch: Launch, line: str | None = None, whose: str = "") -> None:
        """Lend the terminal to a command, and show how it ended."""
        ended = self._launch.lend_terminal(launch, line)
        if ended is not None:
            text = f"{whose}: {ended.how}" if whose and ended.how else ended.text
            self.view.show_message(text, "" if ended.good else "lost", kind="lasting")
