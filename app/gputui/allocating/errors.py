"""Why a request ends without an allocation."""

from __future__ import annotations

from gputui.inventory.errors import GputuiError


class RequestError(GputuiError):
    """No box can meet the request, or it contradicts the command. The message is one line."""

    code, status = "bad_request", 2


class NotEnoughError(GputuiError):
    """There are too few devices. The message is one line that says why the others are unavailable."""

    code, status = "not_enough", 4
    remedy: str | None = "wait for devices (--wait), or ask for fewer (-n) or others (--gpus)"


class UnsafeError(NotEnoughError):
    """Devices cannot be claimed safely against other programs: the message has cause and remedy."""

    code, remedy = "unsafe", None


class WaitedTooLongError(GputuiError):
    """The time limit for waiting is over."""

    code, status = "waited_too_long", 124
