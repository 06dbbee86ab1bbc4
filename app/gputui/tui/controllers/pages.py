"""PageController: opens the pages over the main screen.

Each page is imported when it is first opened: all together take 0.24 s of CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.sources.source import Clock
from gputui.tui.background import in_background
from gputui.tui.controllers.jobs import JobsController
from gputui.tui.controllers.launch import LaunchController
from gputui.tui.main_view import MainView

if TYPE_CHECKING:
    from gputui.allocating.settings import HostSettings
    from gputui.checking.measurement import Measured
    from gputui.choosing.bandwidth import Rates
    from gputui.sources.simulated.source import SimulatedSource
    from gputui.system.environment import Environ
    from gputui.tui.controllers.nodes import Nodes
    from gputui.tui.controllers.slurm_nodes import SlurmNodes
    from gputui.tui.controllers.timelines import TimelineController
    from gputui.tui.process_rows import Form
    from gputui.tui.screens.page import PageKeys


class PageController:
    """Opens a page over `view`, whose app state the page shows and whose actions the page can perform."""

    def __init__(
        self, view: MainView, launch: LaunchController, jobs: JobsController, environ: Environ
    ) -> None:
        self._view, self._launch, self._jobs, self._environ = view, launch, jobs, environ
        self._slurm: SlurmNodes | None = None

    def open_help(self, keys: PageKeys | None = None) -> None:
        """Open the help, which begins with the keys of a page, if there are any."""
        from gputui.tui.screens.help import HelpScreen

        self._view.open(HelpScreen(self._view, keys))

    def open_messages(self) -> None:
        from gputui.tui.screens.messages import MessagesScreen

        self._view.open(MessagesScreen(self._view))

    def open_topology(self) -> None:
        from gputui.tui.screens.topology import TopologyScreen

        self._view.open(TopologyScreen(self._view))

    def open_device(self) -> None:
        if self._view.app_state.current is None:
            self._view.show_message("there is no GPU at the cursor", "warn")
            return
        from gputui.tui.screens.device import DeviceScreen

        self._view.open(DeviceScreen(self._view))

    def open_processes(self, form: Form = "list") -> None:
        from gputui.tui.screens.processes import ProcessesScreen

        self._view.open(ProcessesScreen(self._view, form))

    def open_nodes(self, clock: Clock) -> None:
        """Open the page of nodes; where there are none, say how to name some."""
        from gputui.allocating.settings import SettingsError

        try:
            hosts, slurm = self._hosts_and_slurm()
        except SettingsError as error:
            self._view.show_message(str(error), "warn")
            return
        label = self._view.app_state.label
        if hosts is None and not slurm:
            from gputui.tui.views.nodes import NO_BOXES

            self._view.show_message(f"{label}: a recording has no other nodes" if label else NO_BOXES, "warn")
            return
        from gputui.sources.hosts.channel import Channels
        from gputui.sources.hosts.ssh import Way
        from gputui.sources.simulated.hosts import SimulatedChannels
        from gputui.tui.controllers.box_nodes import BoxNodes
        from gputui.tui.controllers.slurm_nodes import SlurmNodes
        from gputui.tui.screens.nodes import NodesScreen

        given = self._view, self._launch, self._environ
        kinds: list[Nodes[Any]] = []
        if hosts is not None:
            channels = SimulatedChannels(clock) if label else Channels(hosts.boxes, Way(hosts.timeout), 1.0)
            kinds.append(BoxNodes(*given, channels))
        if slurm:
            self._slurm = self._slurm or SlurmNodes(*given, clock)
            kinds.append(self._slurm)
        self._view.open(NodesScreen(self._view, kinds))

    @property
    def has_nodes(self) -> bool:
        """Whether there are other nodes to show, as far as the settings can be read."""
        from gputui.allocating.settings import SettingsError

        try:
            return any(self._hosts_and_slurm())
        except SettingsError:
            return False

    def _hosts_and_slurm(self) -> tuple[HostSettings | None, bool]:
        """The other boxes, None for none, and whether there is Slurm: the boxes of the settings, and Slurm's
        programs on this machine. A demo has both, a recording neither. Raises SettingsError."""
        from gputui.allocating.settings import settings
        from gputui.sources.slurm import slurm_is_here

        demo = self._view.app_state.demo is not None
        if self._view.app_state.label and not demo:
            return None, False
        hosts = settings(self._environ).hosts
        return hosts if demo or hosts.boxes else None, demo or slurm_is_here()

    def open_timelines(self, timelines: TimelineController) -> None:
        from gputui.tui.screens.timelines import TimelinesScreen

        self._view.open(TimelinesScreen(self._view, timelines))

    def open_usage(self, simulated: SimulatedSource | None) -> None:
        """Open the page of usage: that of the simulated box, if it is one."""
        label = self._view.app_state.label
        if label and simulated is None:
            self._view.show_message(f"{label}: its usage is not recorded", "warn")
            return
        from gputui.timeline.usage import of_past
        from gputui.tui.screens.usage import UsageScreen

        demo = None if simulated is None else lambda: of_past(simulated.past())
        self._view.open(UsageScreen(self._view, self._environ, demo))

    def open_launch_page(self, launches: bool = False) -> None:
        from gputui.tui.screens.launch import LaunchScreen

        self._view.open(LaunchScreen(self._view, self._environ, launches))

    def open_settings(self, first: str = "") -> None:
        """Open the settings at the first row whose id begins with `first`."""
        from gputui.tui.screens.settings import SettingsScreen

        self._view.open(SettingsScreen(self._view, self._environ, first))

    def open_jobs(self) -> None:
        from gputui.tui.screens.jobs import JobsScreen

        self._view.open(JobsScreen(self._view, self._jobs, self._environ, self._launch.copy_text))

    def open_queue(self) -> None:
        from gputui.tui.screens.queue import QueueScreen

        self._view.open(QueueScreen(self._view, self._jobs))

    def open_export(self) -> None:
        from gputui.tui.screens.export import ExportScreen

        def opened() -> None:
            self._view.open(ExportScreen(self._view, self._launch.copy_text))

        self._launch.with_devices("Export for", opened)

    def open_check(self) -> None:
        if self._view.app_state.snapshot is None:
            self._view.show_message("no reading yet", "warn")
        else:
            self._launch.with_devices("Check", self._open_check)

    def _open_check(self) -> None:
        from gputui.tui.screens.check import CheckScreen

        def keep(measured: Measured) -> None:
            app_state = self._view.app_state
            self._view.set_app_state(replace(app_state, measured={**app_state.measured, **measured.pairs}))
            if not app_state.label:
                in_background("keep bandwidths", lambda: self._keep_bandwidths(measured.pairs))

        self._view.open(CheckScreen(self._view, self._environ, keep))
        if label := self._view.app_state.label:
            self._view.show_message(f"{label}: these GPUs are simulated; the check asks this machine", "warn")

    def _keep_bandwidths(self, pairs: Rates) -> None:
        from gputui.checking.kept_bandwidth import keep

        refused = keep(self._environ, pairs)
        if refused is not None:
            self._view.app.call_later(self._view.show_message, printable(refused), "warn")
