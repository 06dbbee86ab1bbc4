"""MainView: the interface of the main screen for controllers and pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from textual.app import App
from textual.screen import Screen

from gputui.allocating.settings import Settings
from gputui.tui.app_state import AppState
from gputui.tui.message_log import Kind, Message

if TYPE_CHECKING:
    from gputui.tui.screens.page import PageKeys

Result = TypeVar("Result")


class SelectionView(Protocol):
    """Shows a box whose devices are selected: holds and shows the app state and one message."""

    @property
    def app(self) -> App[object]:
        """The running application."""

    @property
    def app_state(self) -> AppState:
        """The app state that is shown now."""

    def set_app_state(self, app_state: AppState) -> None:
        """Show another app state. If it changes the launch, a pending launch is cancelled."""

    def show_message(self, text: str | None, style: str = "", kind: Kind = "answer") -> None:
        """Show a message until the next key, or as its kind says, in a style of `widgets/lines.py`; None
        changes nothing."""

    def clear_message(self) -> None:
        """Show no message."""

    def redraw_page(self) -> None:
        """Draw the page that is open over the main screen, if any: the app state has changed."""

    def open(self, screen: Screen[Result], answered: Callable[[Result | None], None] | None = None) -> None:
        """Push a screen over this one. A pending launch is cancelled."""


Then = Callable[[], object]
"""What is done next; what it returns is of no interest."""


class MainView(SelectionView, Protocol):
    """The main screen, as pages and controllers see it."""

    def when_files_are_read(self, then: Then) -> None:
        """Call `then` once the displayed launch is up to date with its files; at once if it already is."""

    @property
    def table_width(self) -> int:
        """Width of the device table, in cells, without the panels beside it."""

    @property
    def message(self) -> str:
        """The message that is shown, "" for none."""

    @property
    def message_shown(self) -> Message | None:
        """The same with its time and its style, None for none."""

    @property
    def messages(self) -> Sequence[Message]:
        """The last messages, the newest last."""

    def repaint(self) -> None:
        """Paint every cell: another program has written on the terminal."""

    def perform(self, action_id: str) -> None:
        """Perform one of the actions of `tui/actions.py`."""

    def save_setting(self, table: str, key: str, value: Any, saved: Callable[[Settings], object]) -> None:
        """Use another value of a setting (None: the default), and save it in the user's settings if the box
        is this machine. `saved` is called with the settings afterwards, unless they are the screen's own."""

    @property
    def page_action(self) -> str:
        """The action that opened the last page."""

    def choose(self, action_id: str) -> None:
        """Perform an action as chosen from the palette: on the present page if that can do it, else here."""

    def replace_page(self, action_id: str) -> None:
        """Close the open pages, and perform one of these actions, which opens another page."""

    def select_best(self, line: str) -> None:
        """Select the best devices for a number and a grouping ("8 tp=2"). Raises GroupingError."""

    def press_digit(self, digit: int) -> None:
        """Add a digit to the index of a GPU to select or deselect."""

    def forget_digits(self) -> bool:
        """Forget the digits that wait for another; return whether there were any."""

    def open_help(self, keys: PageKeys) -> None:
        """Open the help, which begins with these keys of a page."""

    def look_at(self, keys: Sequence[str]) -> None:
        """Have these devices (`Device.key`) read in full while a page shows them, () for none."""
