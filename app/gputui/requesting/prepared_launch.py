"""A prepared launch: a launch request whose command has been read, and the resulting request to the box.

It decides which devices suit the command, and makes the launch on the allocated devices. The screen, where a
person selects the devices, only makes the launch here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Approve
from gputui.allocating.errors import RequestError
from gputui.allocating.request import CommandList, Request
from gputui.allocating.settings import Settings
from gputui.choosing.links import weakest
from gputui.choosing.named_devices import NONE, entries_of
from gputui.inventory.device import Device
from gputui.inventory.formatting import Tell
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.launching.compose import compose, on_any, starts_several
from gputui.launching.daemonizers import refusal_of
from gputui.launching.environment_hints import THREADS, threads_near
from gputui.launching.host_environment import HostEnvironment, ThisHost
from gputui.launching.intent import Asked, Intent, settle
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions, Meeting
from gputui.launching.read_intent import read_intent
from gputui.launching.secrets import program_and_script
from gputui.launching.start import line_in_one_word
from gputui.requesting.launch_request import LaunchRequest
from gputui.sources.source import Want
from gputui.system.environment import Environ
from gputui.vendors.registry import order_to_read, vendor_of, vendors_here, vendors_of
from gputui.vendors.vendor import Vendor, renumbered
from gputui.vendors.visibility import Confine


@frozen
class CommandRead:
    """A launch request, the intent that its command states about devices, and whether to confine it."""

    asked: LaunchRequest
    intent: Intent
    confine: Confine


@frozen
class PreparedLaunch(CommandRead):
    """A command that has been read, with the `request` to the box."""

    request: Request

    def approve(self, environ: Environ, claims: bool = True) -> Approve:
        """The check that refuses devices on which the command cannot be started: because it would use other,
        unclaimed devices, or would go on without the claim (where the call `claims`), or for another reason.

        The check raises RequestError. With `--force`, the devices win wherever the command can be rewritten.
        """
        options, intent, request = self.asked.options, self.intent, self.request
        one_word = line_in_one_word(options.command, options.directory) if options.command else None

        def approve(devices: Sequence[Device] | int, box: Sequence[Vendor]) -> None:
            if one_word is not None:
                why: str | None = one_word
            elif isinstance(devices, int):
                # The devices of the command's own list are picked from that list.
                listed = request.command_list is not None or intent.counted_inside is not None
                said = replace(intent.confined(), devices=None) if listed else intent
                why = on_any(options, devices, environ, box=box, intent=said).refusal
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

    def launch(
        self,
        allocation: Allocation,
        environ: Environ,
        meeting: Meeting | None = None,
        prove: bool = True,
        again: bool = False,
        host: HostEnvironment | None = None,
        asking: Callable[[], object] | None = None,
    ) -> Launch:
        """The launch on the allocated devices, confined to them where requested.

        With `prove`, a proof that confinement works comes first; with `again`, even where an earlier proof
        exists; `asking` is called before it, because it can take seconds. `host` has the files that the
        launch depends on, None for those of this machine. Raises RequestError where the launch must be
        confined and cannot be.
        """
        # A launch without devices hides the devices of all installed vendors.
        box = vendors_of(allocation.snapshot.devices) or vendors_here()
        devices, snapshot, intent = allocation.devices, allocation.snapshot, self.intent
        host, link = host or ThisHost(), weakest(snapshot, devices)
        options, warnings = self.asked.options, list[str]()
        if self.asked.near:
            threads = threads_near(snapshot, devices)
            if threads is None:
                warnings.append(f"{THREADS} is not set: the CPUs near these devices are not known")
            else:
                options = replace(options, additions=(*options.additions, (THREADS, str(threads))))

        def made(numbered: Sequence[Device], said: Intent) -> Launch:
            return compose(numbered, options, environ, host, box, said, meeting, link)

        if self.confine == "never":
            launch = made(devices, intent)
        else:
            from gputui.launching.confine import confined

            launch = confined(devices, made, intent, snapshot, environ, self.confine, prove, again, asking)
            if launch.inside is None and intent.counted_inside is not None and launch.refusal is not None:
                # The devices were chosen on the assumption that the launch would be confined.
                why = launch.unconfined or "there are no other devices"
                raise RequestError(f"{launch.refusal}; it is not confined: {why}")
        return replace(launch, warnings=(*warnings, *launch.warnings)) if warnings else launch


def how_confined(options: LaunchOptions, settings: Settings, here: bool = True) -> Confine:
    """Whether to confine a command: by its options, else by the settings; never where its devices are not
    `here` (a demo box, a recording)."""
    return options.confine or settings.confine if here else "never"


def read_command(asked: LaunchRequest, environ: Environ, confine: Confine) -> CommandRead:
    """Read the command's intent about devices, adjusted for the confinement that is expected."""
    intent = read_intent(asked.options, environ)
    if confine != "never" and intent.devices is not None:
        from gputui.launching.confine import expecting

        intent = expecting(intent, asked.options, confine, environ)
    return CommandRead(asked, intent, confine)


def prepare(
    read: CommandRead,
    settings: Settings,
    job: str | None = None,
    tell: Tell = lambda text: None,
) -> PreparedLaunch:
    """Combine the demands of the call and of its command.

    `job` is the id of the job that asks; `tell` receives a note about the command's decisions. Raises
    RequestError where the call's own list is wrong, or where call and command contradict each other, unless
    the call has `--force`.
    """
    asked, intent = read.asked, read.intent
    devices = asked.devices
    if devices.names is not None:
        # A list with an empty entry is wrong, whatever the command says.
        entries_of(devices.names)
    settled = settle(Asked(devices.count, devices.names, devices.group), intent, devices.force)
    default = intent.devices if settled.names is not None else intent.count
    if devices.names is None and devices.count is None and default is not None and not default.firm:
        option = f"--gpus {settled.names}" if settled.names is not None else f"-n {settled.count}"
        said = f"as if {option} were given" if settled.names != NONE else "no device is selected"
        tell(f"note: {said} ({default.words}); -n or --gpus overrides that")
    request = replace(devices, count=settled.count, names=settled.names, group=settled.group).request(
        settings.rules,
        facts=_facts(read, settled),
        ranked=starts_several(asked.options, intent),
        purpose=program_and_script(asked.options.command),
        job=job,
        time_limit=asked.options.time_limit,
        client=asked.client,
    )
    return PreparedLaunch(asked, intent, read.confine, _with_command(request, settled))


def _facts(read: CommandRead, settled: Asked) -> Want:
    """The facts to read about the devices: to understand the command's own list, for the trainer that it
    starts, to confine it, and to find the CPUs near the devices."""
    facts, named = Want.VERDICT, settled.by_command
    facts |= Want.LINKS if read.intent.trainer else Want(0)
    facts |= order_to_read(named.environ, named.listed) if named is not None else Want(0)
    facts |= Want.NODES if read.confine != "never" else Want(0)
    return facts | (Want.TOPOLOGY if read.asked.near else Want(0))


def _with_command(request: Request, settled: Asked) -> Request:
    """The request with the command's own list of devices, and without the devices that the command
    excludes."""
    if settled.by_command is not None:
        listed = CommandList(settled.by_command.words, settled.by_command.environ)
        request = replace(request, command_list=listed)
        if settled.by_command.first and not request.force:
            # No person selected these devices: they must be free, like devices that are asked for by number.
            request = replace(request, count=settled.by_command.count, order=request.order or "given")
    if settled.excluded is not None:
        never = (*request.rules.never, *settled.excluded.listed.split(","))
        request = replace(request, rules=replace(request.rules, never=never))
    return request


def _agree(devices: Sequence[Device], intent: Intent, force: bool) -> None:
    """Raise RequestError unless the devices are those that the command names, in its order; with `force`,
    only where the command cannot be rewritten.

    Two lists of indices have been compared before: this check is for UUIDs.
    """
    named = intent.devices
    if named is None or not named.firm or (force and named.rewritable):
        return
    visibility = vendor_of(devices).visibility
    same = visibility.names_in_order(named.listed, devices) if named.listed else not devices
    if not same:
        found = visibility.identifiers(devices) or NONE
        remedy = " (--force rewrites it)" if named.rewritable else ""
        raise RequestError(f"--gpus {found} contradicts {named.words} in the command{remedy}")
