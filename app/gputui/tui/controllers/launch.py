"""LaunchController: edit, copy, claim, read again, ask, start and wait: from the launch line to the process.

After Enter the selected devices are claimed and read again. Where one of them is not free, or others wait in
line for it, the user is asked (`start_or_ask`); a device that is never taken (`answer_to`) is refused. A
rerun of a job goes the same way, but it has been confirmed: it is refused where a launch is asked about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn

from gputui.choosing.grouping import GroupingError
from gputui.choosing.selection import NotFree, not_free
from gputui.choosing.verdict_text import not_free_lines
from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import gpus
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.launching.clipboard import Copied, copy
from gputui.launching.shell_words import assignments, command_line, shell_expansion, split
from gputui.launching.start import line_in_one_word, missing_program
from gputui.sources.sampler import Sampler
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.background import in_background
from gputui.tui.main_view import MainView
from gputui.tui.outcome import Outcome

if TYPE_CHECKING:
    from gputui.allocating.allocation import Allocation, Queue
    from gputui.launching.launch import Launch
    from gputui.requesting.launch_request import LaunchRequest
    from gputui.tui.start_launch import Returned


def select_first(keymap: Mapping[str, str]) -> str:
    """The message where devices are needed and none is selected."""
    select, best, cpu = (key_of(action, keymap) for action in ("select", "best", "cpu"))
    return f"select devices first ({select.removesuffix('/0-9')}, 0-9, {best}), or {cpu} for CPU only"


_PATIENCE, _RERUNS_PATIENCE = 2.0, 5.0
"""Seconds to wait for the selected devices to be read again before a launch; or three readings, where those
take longer. A rerun waits longer, because it is given up then: a launch is asked about."""

_NUMBERS = {2: "two", 3: "three", 4: "four", 8: "eight"}

StartMode = Literal["become", "return", "detach", "rerun"]
"""How a command is started: in place of the screen, while the screen waits, as a job, or as a job again."""


@dataclass(frozen=True, slots=True)
class PendingLaunch:
    """A launch between the key press and the start.

    app_state   the app state at the key press; of a rerun, the one with its command and devices
    since       its time (`time.monotonic`): only a reading that began later shows the devices' current state
    allocation  holds the devices meanwhile, except those that another job has claimed
    queue       the waiters for such devices, None for nobody
    request     the launch as its job keeps it
    """

    app_state: AppState
    since: float
    mode: StartMode
    allocation: Allocation
    queue: Queue | None
    request: LaunchRequest


class LaunchController:
    """Edits, copies and starts the launch of the app state that `view` shows. Another controller starts
    reruns, which the keys of that launch do not cancel.

    clock                 seconds since the epoch, for the launch history
    write                 sends an escape sequence to the terminal, from any thread; None: through /dev/tty
    end_without_terminal  ends the process: the terminal was closed while a command had it
    """

    def __init__(
        self,
        view: MainView,
        sampler: Sampler,
        environ: Mapping[str, str],
        clock: Callable[[], float],
        write: Callable[[str], None] | None,
        end_without_terminal: Callable[[], NoReturn],
    ) -> None:
        self._view, self._sampler, self._environ, self._clock = view, sampler, environ, clock
        self._write, self._end_without_terminal = write, end_without_terminal
        self.pending: PendingLaunch | None = None
        self._asking: PendingLaunch | None = None
        self._confining: PendingLaunch | None = None
        self.uncertain_copy: str | None = None
        """The text copied last, where it is unknown whether the terminal accepted it."""

    # Editing

    def edit(self, what: str = "command") -> None:
        """Let the user type the command; typing replaces a demo's example. `what` names it in the prompt."""
        from gputui.tui.screens.line_input import command_input

        app_state = self._view.app_state
        line = command_line(app_state.options.additions, app_state.options.command)
        self._view.open(command_input(line, what, app_state.is_example), self._edited)

    def _edited(self, line: str | None) -> None:
        if line is None:
            return
        additions, command = assignments(split(line))
        app_state = self._view.app_state
        options = replace(app_state.options, command=command, additions=additions)
        self._view.set_app_state(replace(app_state, options=options))
        self._view.when_files_are_read(self._read_command)
        expansion = shell_expansion(line)
        if expansion:
            words = f"{expansion} stays as it is: only a shell would replace it (bash -c '…')"
            self._view.show_message(words, "warn")

    def _read_command(self) -> None:
        if self._view.app_state.command_is_unread:
            app_state, message = self._view.app_state.with_command_read()
            self._view.show_message(message, "warn")
            self._view.set_app_state(app_state)

    def next_launcher(self) -> None:
        self._view.set_app_state(self._view.app_state.next_launcher())

    def other_ids(self) -> None:
        app_state = self._view.app_state.other_ids()
        self._view.set_app_state(app_state)
        if not app_state.selected:
            # No launch line shows it yet.
            self._view.show_message(
                f"devices are named by {'UUID' if app_state.options.ids == 'uuid' else 'index'}"
            )

    # Copying

    def copy(self) -> None:
        """Put the launch line on the clipboard."""
        if not self._view.app_state.selection.decided:
            self._view.show_message(select_first(self._view.app_state.screen.keymap), "warn")
            return
        self._view.when_files_are_read(lambda: self.copy_text(self._view.app_state.launch.line))

    def copy_text(self, text: str) -> None:
        """Put a text on the clipboard, and show the method."""
        app = self._view.app

        def work() -> None:
            app.call_later(self._copied, text, copy(text, self._environ, self._write))

        in_background("copy", work)

    def _copied(self, text: str, copied: Copied) -> None:
        self._view.show_message(copied.message, "" if copied.sure else "warn")
        self._view.redraw_page()
        if not copied.sure:
            self.uncertain_copy = text

    # Launching

    def launch(self, mode: StartMode) -> None:
        """Claim the selected devices and request a new reading; `start_or_ask` continues after it."""
        self._view.when_files_are_read(partial(self._launch, mode))

    def _launch(self, mode: StartMode) -> None:
        app_state = self._view.app_state
        if not app_state.options.command:
            self.edit()
        elif self._cannot_start():
            return
        elif not app_state.selection.decided:
            self._offer_devices(mode)
        elif self.pending is None and self._confining is None:
            from gputui.tui import start_launch

            self._check(app_state, mode, start_launch.request_of(app_state))

    def rerun(self, app_state: AppState, request: LaunchRequest) -> None:
        """Start a job again on the devices of the app state, instead of a rerun that is still pending."""
        self.cancel()
        self._check(app_state, "rerun", request)

    def _check(self, app_state: AppState, mode: StartMode, request: LaunchRequest) -> None:
        from gputui.tui import start_launch

        self._view.show_message("checking the selected devices …", passing=True)
        held = start_launch.hold_selected(app_state, self._environ)
        pending = PendingLaunch(app_state, time.monotonic(), mode, *held, request)
        if app_state.selection.cpu_only:
            # No device is read: this works where no driver answers.
            self.start_or_ask(pending)
        else:
            self.pending = pending
            self._sampler.ask()

    def _offer_devices(self, mode: StartMode) -> None:
        """Ask whether to run on the devices that the command asks for, or on the best free one; where too few
        are free, whether to wait in line."""
        from gputui.tui.screens.confirm import Answer, ConfirmScreen

        before = self._view.app_state
        if not before.rows:
            self._view.show_message(select_first(before.screen.keymap), "warn")
            return
        offered, why = before.with_command_read(again=True)
        says = offered.command_choice.words if offered.command_choice else ""
        if not says:
            offered, why = before.select_best(1)
        if not offered.selection.decided:
            if offered.short_of is not None and not before.label:
                self._view.set_app_state(offered)
                self.wait_in_line()
            else:
                self._view.show_message(why, "warn")
            return
        self._view.set_app_state(offered)
        if before.label or offered.selection.cpu_only:
            # One question is enough: the other asks whether to start on this machine.
            self._launch(mode)
            return

        def answered(answer: Answer | None) -> None:
            now = self._view.app_state
            if answer in ("run", "detach", "return"):
                self._launch(mode if answer == "run" else answer)
            elif now.selection == offered.selection:
                self._view.set_app_state(now.clear())

        count = len(offered.selection)
        best = "the best free" if count == 1 else f"the best {_NUMBERS.get(count, count)} free"
        names = gpus([*map(offered.box.label, offered.selected)])
        question = (
            f"Run on {names} ({f'as {says} says' if offered.suggestion is before.suggestion else best})?"
        )
        reasons = [each for each in (why, *offered.warnings) if each]
        self._view.open(ConfirmScreen(tuple(reasons), free=question), answered)

    def _cannot_start(self) -> bool:
        """Whether the command cannot start; the reason is shown."""
        lack = self._lack()
        if lack is not None:
            self._view.show_message(*lack)
        return lack is not None

    def _lack(self) -> tuple[str, str] | None:
        """The reason that the command cannot start, and the style of the message; None where it can."""
        app_state = self._view.app_state
        options, keymap, launch = app_state.options, app_state.screen.keymap, app_state.launch
        edit, page, ask = (key_of(action, keymap) for action in ("edit", "launch_page", "command"))
        if app_state.is_example:
            return f"nothing is started: this is the demo's example; press {edit} to type your own", "warn"
        if options.nodes > 1 and not options.rendezvous:
            return f"the first machine is not named yet: press {page}, then first machine", "warn"
        refused = launch.refused or app_state.unclaimed
        if refused is not None:
            return refused, "lost"
        if launch.own is not None:
            # Devices are never claimed for a command that will use others.
            words = f"the command itself uses {launch.own.words}; press {ask} to select those devices"
            return words, "warn"
        missing = line_in_one_word(options.command, options.directory)
        missing = missing or missing_program(launch, self._environ)
        return (f"{missing}: press {edit} to edit the command", "lost") if missing is not None else None

    def cancel(self) -> bool:
        """Drop the pending launches, and give their devices back; return whether there was one."""
        dropped = [each for each in (self.pending, self._confining) if each is not None]
        for pending in dropped:
            pending.allocation.release()
        self.pending = self._confining = None
        return bool(dropped)

    def release_all(self) -> None:
        """Release all claims of launches that have not been started."""
        self.cancel()
        if self._asking is not None:
            self._asking.allocation.release()

    def take_reread(self, began: float) -> PendingLaunch | None:
        """Take the pending launch if the reading that began at `began` (`time.monotonic`) is its new reading;
        else None."""
        pending = self.pending
        if pending is None or began < pending.since:
            return None
        self.pending = None
        return pending

    def start_or_ask(self, pending: PendingLaunch) -> None:
        """Start the launch, but ask first where one of its devices is not free, others wait for it, or the
        box is not this machine."""
        app_state = self._view.app_state
        self._view.clear_message()
        if pending.mode == "rerun":
            self._rerun_or_refuse(pending)
            return
        changed: dict[str, str] = {}
        if not app_state.selection.cpu_only:
            if app_state.snapshot is None or not app_state.selection.decided:
                pending.allocation.release()
                self._view.show_message("the selected devices are no longer present", "lost")
                return
            if self._refused(pending):
                return
            changed = not_free_lines(self._not_free(pending), app_state.snapshot)
        if self._unclear() or any(
            (app_state.label, changed, app_state.contradiction, pending.allocation.conflicts, pending.queue)
        ):
            self._ask(pending, changed)
        else:
            self._start(pending)

    def _rerun_or_refuse(self, pending: PendingLaunch) -> None:
        allocation, now = pending.allocation, self._now(pending)
        gone = allocation.recheck(now.box, now.verdicts, pending.app_state.verdicts)
        reasons = [each.text(allocation.snapshot) for each in allocation.conflicts]
        reasons += [each.text(allocation.snapshot) for each in gone]
        reasons += [pending.queue.text()] if pending.queue else []
        if reasons:
            allocation.release()
            self._view.show_message(f"nothing is started: {'; '.join(reasons)}", "lost")
        else:
            self._start(pending)

    def _now(self, pending: PendingLaunch) -> AppState:
        """The app state of the launch at the last reading."""
        now, rerun = self._view.app_state, pending.app_state
        if pending.mode != "rerun":
            return now
        # The rules of the job apply, which may ignore the user's own processes.
        return replace(rerun, snapshot=now.snapshot, watch=now.watch).with_rules(rerun.rules)

    def _not_free(self, pending: PendingLaunch) -> dict[str, NotFree]:
        """The devices of the launch that are not free in the last reading."""
        now, before = self._view.app_state, pending.app_state
        if now.snapshot is None:
            return {}
        return not_free(before.selection, before.verdicts_when_selected, now.snapshot, now.verdicts)

    def _refused(self, pending: PendingLaunch) -> bool:
        """Whether the launch has a device that is never taken, whatever the user answers. Then the reason is
        shown and the launch ends."""
        from gputui.allocating.allocation import answer_to

        snapshot = self._view.app_state.snapshot
        found = self._not_free(pending)
        never = {key: each for key, each in found.items() if answer_to(each.verdict) == "never"}
        if snapshot is not None and never:
            pending.allocation.release()
            self._view.show_message("; ".join(not_free_lines(never, snapshot).values()), "lost")
        return bool(never)

    def _unclear(self) -> tuple[str, ...]:
        """The reason where it is unknown whether the selected devices are those that we were given."""
        app_state = self._view.app_state
        limits = app_state.limits if app_state.selected else None
        return (limits.unknown,) if limits is not None and limits.unknown else ()

    def ask_without_reread(self) -> None:
        """Ask about a launch whose devices could not be read again in time; give a rerun up."""
        pending = self.pending
        if pending is None:
            return
        least = _RERUNS_PATIENCE if pending.mode == "rerun" else _PATIENCE
        if time.monotonic() - pending.since > max(least, 3 * self._sampler.took):
            self.pending = None
            if pending.mode == "rerun":
                pending.allocation.release()
                self._view.show_message("nothing is started: the driver does not answer", "lost")
                return
            if self._refused(pending):
                return
            unread = "the selected devices could not be read again: the driver does not answer"
            self._view.clear_message()
            self._ask(pending, {}, unread)

    def _ask(self, pending: PendingLaunch, changed: Mapping[str, str], *more: str) -> None:
        """Ask whether to start all the same; `changed` has a line for each device that is not free."""
        from gputui.tui.screens.confirm import Answer, ConfirmScreen

        before, allocation = self._view.app_state, pending.allocation
        self._asking = pending

        def answered(answer: Answer | None) -> None:
            self._asking = None
            if answer == "wait":
                allocation.release()
                self.wait_in_line()
                return
            if answer == "run" and self._refused(pending):
                return
            now = self._view.app_state
            # Readings continued behind the question: the yes applies only to the selection as it was asked.
            same = (now.selection, now.options) == (before.selection, before.options)
            if answer == "run" and same and before.selection.decided:
                self._start(pending)
                return
            if answer == "run" and not same:
                self._view.show_message(
                    "the selected devices have changed in the meantime: look again", "lost"
                )
            allocation.release()

        # One line per device: its observed use is more informative than its claim.
        claimed = {each.key: each.text(allocation.snapshot) for each in allocation.conflicts}
        lines = {**claimed, **changed}
        in_order = [lines[key] for key in pending.app_state.selection if key in lines]
        contradiction = self._view.app_state.contradiction
        said = (contradiction,) if contradiction else ()
        if self._view.app_state.label:
            where = self._view.app_state.not_of_this_machine("devices")
            real = f"{where}: the command would start on this machine"
            more = (real, *more)
        reasons = [*more, *in_order, *self._unclear(), *said]
        reasons += [pending.queue.text()] if pending.queue else []
        self._view.open(ConfirmScreen(tuple(reasons), may_wait=pending.queue is not None), answered)

    def _start(self, pending: PendingLaunch) -> None:
        """Start the launch once its confinement is settled."""
        from gputui.tui import start_launch

        self._confining = pending
        found = partial(self._start_confined, pending)
        start_launch.when_confined(self._view, self._now(pending), self._environ, found)

    def _start_confined(self, pending: PendingLaunch, launch: Launch | GputuiError) -> None:
        from gputui.launching.history_file import remember
        from gputui.tui import start_launch

        app, allocation = self._view.app, pending.allocation
        if self._confining is not pending:
            self._view.show_message("nothing was started: the launch was cancelled first", "warn")
            return
        self._confining = None
        if isinstance(launch, GputuiError):
            allocation.release()
            self._view.show_message(str(launch), "lost")
            return
        warnings = [notice.text for notice in allocation.notices]
        if pending.mode != "rerun":
            count = start_launch.count_of(self._view.app_state)
            not_kept = remember(self._environ, self._view.app_state.options, count, self._clock())
            warnings = [not_kept, *warnings] if not_kept else warnings
        warning = "; ".join(warnings)
        if pending.mode == "become":
            app.exit(Outcome(launch=launch, allocation=allocation, warning=warning or None))
            return
        if pending.mode == "return":
            ended = allocation.start(
                lambda lease: start_launch.run_and_return(
                    app, launch, self._environ, lease, self._end_without_terminal
                )
            )
            if ended.signal is not None:
                app.exit(Outcome(status=128 + ended.signal), return_code=128 + ended.signal)
                return
            text, good = ended.text, ended.good
            self._view.repaint()
        else:
            text, good = allocation.start(
                lambda lease: start_launch.as_job(
                    launch, self._environ, lease, pending.request, allocation.labels
                )
            )
            if good and pending.mode == "detach":
                text += ": D shows it"
                if self._view.app_state.selected:
                    # The devices belong to that job from now on, and the next launch is for others.
                    self._view.set_app_state(self._view.app_state.clear())
        self._view.show_message(f"{text}; {warning}" if warning else text, "" if good else "lost")

    def lend_terminal(self, launch: Launch, line: str | None = None) -> Returned | None:
        """Lend the terminal to a command that needs none of our devices, shown as `line`. Returns its end;
        None where we end, too."""
        from gputui.tui import start_launch

        app = self._view.app
        ended = start_launch.run_and_return(
            app, launch, self._environ, None, self._end_without_terminal, line
        )
        if ended.signal is not None:
            app.exit(Outcome(status=128 + ended.signal), return_code=128 + ended.signal)
            return None
        self._view.repaint()
        return ended

    # Waiting

    def wait_in_line(self) -> None:
        """Wait in line for devices as a job, which waits without a screen."""
        self.cancel()
        app_state = self._view.app_state
        if not app_state.options.command:
            self.edit("command to run when it is your turn")
            return
        if self._cannot_start():
            return
        from gputui.tui import start_launch
        from gputui.tui.screens.line_input import LineScreen
        from gputui.tui.wait_request import read_wait_request, wait_prompt, what_it_does

        def error_in(line: str) -> str | None:
            try:
                read_wait_request(line, self._view.app_state)
            except GroupingError as error:
                return str(error)
            return None

        def explain(line: str) -> str:
            return what_it_does(line, self._view.app_state)

        def answered(line: str | None) -> None:
            if line and line.strip():
                # The selected devices may have vanished since the check.
                error = error_in(line)
                if error is not None:
                    self._view.show_message(error, "lost")
                    return
                now = self._view.app_state
                text, good = start_launch.in_line(now, self._environ, read_wait_request(line, now))
                bad = "warn" if now.label else "lost"
                self._view.show_message(text, "" if good else bad)

        prompt, count = wait_prompt(app_state), app_state.short_of or max(1, len(app_state.selection))
        self._view.open(
            LineScreen(prompt, str(count), "how many", error_in, explain=explain, replaces=True), answered
        )
