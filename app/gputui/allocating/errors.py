"""Why a request ends without an allocation."""

from __future__ import annotations

from gputui.inventory.errors import GputuiError


class RequestError(GputuiError):
    """The request itself cannot be met on any box, or contradicts the command. The message is one line."""


class NotEnoughError(GputuiError):
    """Fewer devices than asked for. The message is one line that says why the others are not to be had."""


class UnsafeError(NotEnoughError):
    """Devices cannot be claimed so that nobody else is given them: the message has cause and remedy."""


class WaitedTooLongError(GputuiError):
    """The time that the caller was willing to wait is over."""
