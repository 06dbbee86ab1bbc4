"""Why a request ends without an allocation."""

from __future__ import annotations

from gputui.inventory.errors import GputuiError


class RequestError(GputuiError):
    """No box can meet the request, or it contradicts the command. The message is one line."""


class NotEnoughError(GputuiError):
    """There are too few devices. The message is one line that says why the others are unavailable."""


class UnsafeError(NotEnoughError):
    """Devices cannot be claimed safely against other programs: the message has cause and remedy."""


class WaitedTooLongError(GputuiError):
    """The time limit for waiting is over."""
