"""What a call and its command ask for together, and whether the devices that are found suit the command.

The command line and the library both ask here; the screen, where a person selects the devices, does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Approve
from gputui.allocating.errors import RequestError
from gputui.allocating.request import CommandList, Request
from gputui.allocating.settings import settings
from gputui.choosing.links import weakest
from gputui.choosing.named_devices import NONE, NamingError, entries_of
from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.launching.compose import compose, refusal
from gputui.launching.daemonizers import refusal_of
from gputui.launching.host_environment import ThisHost
from gputui.launching.intent import Asked, ContradictionError, Intent, settle
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions, Meeting
from gputui.launching.read_intent import read_intent
from gputui.launching.start import line_in_one_word
from gputui.sources.source import Want
from gputui.vendors.registry import order_to_read, vendor_of, vendors_here, vendors_of
from gputui.vendors.vendor import Vendor, renumbered
from gputui.vendors.visibility import Confine


def settled_with(asked: Asked, intent: Intent, force: bool) -> Asked:
    """What to ask for, where call and command are both heard. Raises RequestError where they contradict each
    other, unless `force` is given, or where the call's own list is wrong."""
    try:
        if asked.names is not None:
            # (A list with an empty entry is wrong by itself, whatever the command says.)
            entries_of(asked.names)
        return settle(asked, intent, force)
    except (ContradictionError, NamingError) as error:
        raise RequestError(str(error)) from None


def facts_of(asked: Asked, intent: Intent) -> Want:
    """What must be read of the devices to understand the command's own list of them, and what it starts."""
    named, links = asked.by_command, Want.LINKS if intent.trainer else Want(0)
    return links if named is None else links | order_to_read(named.environ, named.listed)


def as_asked(request: Request, asked: Asked) -> Request:
    """The request, for the list in the command and without the devices that the command leaves out."""
    if asked.by_command is not None:
        listed = CommandList(asked.by_command.words, asked.by_command.environ)
        request = replace(request, command_list=listed)
        if asked.by_command.first and not request.force:
            # (Nobody has decided on these: they must be free, like any that are asked for by their number.)
            request = replace(request, count=asked.by_command.count, order=request.order or "given")
    if asked.excluded is not None:
        never = (*request.rules.never, *asked.excluded.listed.split(","))
        request = replace(request, rules=replace(request.rules, never=never))
    return request


def agreement(
    options: LaunchOptions,
    intent: Intent,
    request: Request,
    environ: Mapping[str, str],
    claims: bool = True,
) -> Approve:
    """What refuses devices for launch options whose command cannot be started on them: as it will use others,
    which would not be claimed, or would go on without the claim (where the call `claims`), or for another
    reason.

    It raises RequestError. With `--force` the devices win wherever the command can be rewritten.
    """

    one_word = line_in_one_word(options.command, options.directory) if options.command else None

    def approve(devices: Sequence[Device] | int, box: Sequence[Vendor]) -> None:
        if one_word is not None:
            why: str | None = one_word
        elif isinstance(devices, int):
            # (Those of the command's own list are picked from that list.)
            listed = request.command_list is not None or intent.counted_inside is not None
            said = replace(intent.confined(), devices=None) if listed else intent
            why = refusal(options, devices, environ, box=box, intent=said)
        elif intent.counted_inside is not None:
            alone = renumbered(tuple(devices))
            why = compose(alone, options, environ, box=box, intent=intent.confined()).refusal
        else:
            why = compose(devices, options, environ, box=box, intent=intent).refusal
            if request.command_list is None:
                _agree(devices, intent, request.force)
        if why is None and devices and claims and not request.force and intent.unclaimed is not None:
            why = f"{refusal_of(intent.unclaimed)} (--force starts it without the claim)"
        if why is not None:
            raise RequestError(why)

    return approve


def _agree(devices: Sequence[Device], intent: Intent, force: bool) -> None:
    """Raises RequestError for devices that are not those which the command names, in its order; with `force`
    only where it cannot be rewritten.

    (Where both are written as indices, that was seen before: this is for UUIDs.)
    """
    named = intent.devices
    if named is None or not named.firm or (force and named.rewritable):
        return
    visibility = vendor_of(devices).visibility
    same = visibility.names_in_order(named.listed, devices) if named.listed else not devices
    if not same:
        found = visibility.identifiers(devices) or NONE
        remedy = " (--force rewrites it)" if named.rewritable else ""
        raise RequestError(f"--gpus {found} contradicts {named.words} of the command{remedy}")


def how_confined(given: Confine | None, environ: Mapping[str, str], here: bool = True) -> Confine:
    """Whether a command is to be confined: as was `given`, else as the settings say; never where nothing of
    its devices is `here` (a demo box, a recording). Raises SettingsError."""
    return given or settings(environ).confine if here else "never"


def heard(options: LaunchOptions, environ: Mapping[str, str], confine: Confine) -> Intent:
    """What the command of launch options says of devices, where it will be confined so."""
    intent = read_intent(options, environ)
    if confine == "never" or intent.devices is None:
        return intent
    from gputui.launching.confine import expecting

    return expecting(intent, options, confine, environ)


def launch_of_allocation(
    allocation: Allocation,
    options: LaunchOptions,
    intent: Intent,
    environ: Mapping[str, str],
    meeting: Meeting | None = None,
    confine: Confine = "never",
    prove: bool = True,
    again: bool = False,
) -> Launch:
    """The launch of launch options on allocated devices.

    `confine` says whether it is confined to them, which is proved first (with `prove`; with `again` also
    where it has been before). Raises RequestError where it is always to be confined, and cannot.
    """
    # (Without devices, those of all vendors that are installed are hidden.)
    box = vendors_of(allocation.snapshot.devices) or vendors_here()
    devices, snapshot = allocation.devices, allocation.snapshot
    host, link = ThisHost(), weakest(snapshot, devices)

    def made(numbered: Sequence[Device], said: Intent) -> Launch:
        return compose(numbered, options, environ, host, box, said, meeting, link)

    launch = made(devices, intent)
    if confine == "never":
        return launch
    from gputui.launching.confine import CannotConfineError, confined

    try:
        launch = confined(launch, made, intent, snapshot, environ, confine, prove, again)
    except CannotConfineError as error:
        raise RequestError(str(error)) from None
    if launch.inside is None and intent.counted_inside is not None and launch.refusal is not None:
        # (It was expected to be confined, and its devices were chosen for that.)
        raise RequestError(
            f"{launch.refusal}; it is not confined: {launch.unconfined or 'there are no other devices'}"
        )
    return launch
