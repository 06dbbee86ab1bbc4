"""Why a request ends without an allocation."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.inventory.errors import GputuiError
from gputui.inventory.errors import RequestError as RequestError


class NotEnoughError(GputuiError):
    """There are too few devices. The message is one line that says why the others are unavailable.

    summary  the message without the reasons
    reasons  (device, reason) for each device, for a display with a line for each; () where there are none
    """

    code, status = "not_enough", 4
    remedy: str | None = "wait for GPUs (--wait), or ask for fewer (-n) or others (--gpus)"

    def __init__(
        self,
        message: str = "",
        devices: Iterable[str] = (),
        summary: str = "",
        reasons: Iterable[tuple[str, str]] = (),
        waiting_helps: bool = True,
    ) -> None:
        super().__init__(message, devices)
        if not waiting_helps:
            self.remedy = self.remedy and "ask for fewer GPUs (-n) or others (--gpus)"
        self.summary, self.reasons = summary, tuple(reasons)


class UnsafeError(NotEnoughError):
    """Devices cannot be claimed safely against other programs: the message has cause and remedy."""

    code, remedy = "unsafe", None


class WaitedTooLongError(GputuiError):
    """The time limit for waiting is over."""

    code, status = "waited_too_long", 124
