"""The base class of all errors that a program which uses gputui as a library may want to catch."""

from __future__ import annotations

from collections.abc import Iterable


class GputuiError(Exception):
    """A failure of gputui and its reason, in one line.

    code     the kind of failure as a word for scripts; docs/json.md lists all
    status   the exit status of a call that ends with it
    remedy   what helps against this kind of failure; None where the message says it
    devices  the keys of the devices that are the reason
    """

    code = "failed"
    status = 1
    remedy: str | None = None

    def __init__(self, message: str = "", devices: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.devices = tuple(devices)


class WrongCallError(GputuiError):
    """The call is wrong: one line on stderr, status 2."""

    code, status = "wrong_call", 2


class RequestError(GputuiError):
    """No box can meet the request, or it contradicts the command. The message is one line."""

    code, status = "bad_request", 2


def reason_of(error: object) -> str:
    """What the system says of an OSError, without its number and file; of any other error, its text."""
    return str(getattr(error, "strerror", None) or error)
