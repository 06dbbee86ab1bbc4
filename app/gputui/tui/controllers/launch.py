"""LaunchController: edit, copy, claim, read again, ask, start and wait: from the launch line to the process.

After Enter the selected devices are claimed and read again. Where one of them is not free, or others wait in
line for it, the user is asked (`start_or_ask`); a device that is never taken (`answer_to`) is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn

from gputui.allocating.settings import Keymap
from gputui.choosing.grouping import GroupingError
from gputui.choosing.selection import NotFree, not_free
from gputui.choosing.verdict_text import not_free_lines
from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import TextWriter, printable
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.launching.clipboard import Copied, copy
from gputui.launching.shell_words import assignments, command_line, shell_expansion, split
from gputui.launching.start import line_in_one_word, missing_program
from gputui.sources.sampler import Sampler
from gputui.sources.source import Clock
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.background import in_background
from gputui.tui.main_view import MainView, Then
from gputui.tui.outcome import Outcome

if TYPE_CHECKING:
    from gputui.allocating.allocation import Allocation, Queue
    from gputui.allocating.claims.lease import Lease
    from gputui.launching.history import Launches
    from gputui.launching.launch import Launch
    from gputui.system.environment import Environ
    from gputui.tui.screens.confirm import Answer, ConfirmScreen
    from gputui.tui.start_launch import Returned


def select_first(keymap: Keymap) -> str:
    """The message where devices are needed and none is selected."""
    select, best, cpu = (key_of(action, keymap) for action in ("select", "best", "cpu"))
    return f"select GPUs first ({select.removesuffix('/0-9')}, 0-9, {best}), or {cpu} for CPU only"


_PATIENCE = 2.0
"""Seconds to wait for the selected devices to be read again before a launch; or three readings, where those
take longer."""

_NUMBERS = {1: "", 2: "two ", 3: "three ", 4: "four ", 8: "eight "}


def _best(count: int) -> str:
    return f"the best {_NUMBERS.get(count, f'{count} ')}free"


StartMode = Literal["become", "return", "detach"]
"""How a command is started: in place of the screen, while the screen waits, or as a job."""

_MODES: Mapping[Answer | None, StartMode | None] = {"run": None, "detach": "detach", "return": "return"}
"""The answers that start a launch, and how: None as its key says."""

_YES: Mapping[StartMode, str] = {"detach": "start the job", "return": "run and come back"}
"""What Enter does, where it is not the key that asked."""


@frozen
class PendingLaunch:
    """A launch between the key press and the start.

    app_state   the app state at the key press
    since       its time (`time.monotonic`): only a reading that began later shows the devices' current state
    allocation  holds the devices meanwhile, except those that another job has claimed
    queue       the waiters for such devices, None for nobody
    offer       the question whether to run on these devices, "" where the user has selected them
    """

    app_state: AppState
    since: float
    mode: StartMode
    allocation: Allocation
    queue: Queue | None
    offer: str = ""


class LaunchController:
    """Edits, copies and starts the launch of the app state that `view` shows.

    clock                 seconds since the epoch, for the launch history
    write                 sends an escape sequence to the terminal, from any thread; None: through /dev/tty
    end_without_terminal  ends the process: the terminal was closed while a command had it
    """

    def __init__(
        self,
        view: MainView,
        sampler: Sampler,
        environ: Environ,
        clock: Clock,
        write: TextWriter | None,
        end_without_terminal: Callable[[], NoReturn],
    ) -> None:
        self._view, self._sampler, self._environ, self._clock = view, sampler, environ, clock
        self._write, self._end_without_terminal = write, end_without_terminal
        self.pending: PendingLaunch | None = None
        self._asking: PendingLaunch | None = None
        self._confining: PendingLaunch | None = None
        self.uncertain_copy: str | None = None
        """The text copied last, where it is unknown whether the terminal accepted it."""

    @property
    def _app_state(self) -> AppState:
        return self._view.app_state

    # Editing

    def edit(
        self,
        what: str = "command",
        line: str | None = None,
        then: Then = lambda: None,
        enter: str = "accept",
    ) -> None:
        """Let the user type the command. `what` names it in the prompt; `line` stands there instead of the
        present command. What the user wanted a command for goes on with `then`; `enter` says how."""
        from gputui.tui.screens.line_input import command_input

        options = self._app_state.options
        present = command_line(options.additions, options.command) if line is None else line
        recent = (command_line(each.options.additions, each.options.command) for each in self._recent())
        recalled = [each for each in dict.fromkeys(recent) if each != present]
        asks = command_input(present, what, recalled, enter)
        self._view.open(asks, partial(self._edited, then))

    def _recent(self) -> Launches:
        from gputui.launching.history import KeepError
        from gputui.launching.history_file import load

        try:
            return load(self._environ)
        except KeepError:
            # The launch page says why.
            return ()

    def _edited(self, then: Then, line: str | None) -> None:
        if line is None:
            return
        additions, command = assignments(split(line))
        app_state = self._app_state
        options = replace(app_state.options, command=command, additions=additions)
        self._view.set_app_state(replace(app_state, options=options))
        self._view.when_files_are_read(self._read_command)
        expansion = shell_expansion(line)
        if expansion:
            words = f"{expansion} stays as it is: only a shell would replace it (bash -c '…')"
            self._view.show_message(words, "warn")
        if command:
            self._view.when_files_are_read(then)

    def _read_command(self) -> None:
        if self._app_state.command_is_unread:
            app_state, message = self._app_state.with_command_read()
            self._view.show_message(message, "warn")
            self._view.set_app_state(app_state)

    # Copying

    def copy(self) -> None:
        """Put the launch line on the clipboard; with nothing selected, offer the devices as `launch` does."""

        def copy_line() -> None:
            self._view.when_files_are_read(lambda: self.copy_text(self._app_state.launch.line))

        self.with_devices("Copy the line for", copy_line)

    def copy_text(self, text: str) -> None:
        """Put a text on the clipboard, and show the method and its first line."""
        app = self._view.app

        def work() -> None:
            app.call_later(self._copied, text, copy(text, self._environ, self._write))

        in_background("copy", work)

    def _copied(self, text: str, copied: Copied) -> None:
        first, _, more = text.strip().partition("\n")
        what = f": {printable(first)}{' …' if more else ''}" if copied.asked else ""
        self._view.show_message(f"{copied.message}{what}", "" if copied.sure else "warn")
        self._view.redraw_page()
        if not copied.sure:
            self.uncertain_copy = text

    # Launching

    def launch(self, mode: StartMode) -> None:
        """Claim the selected devices and request a new reading; `start_or_ask` continues after it."""
        self._view.when_files_are_read(partial(self._launch, mode))

    def _launch(self, mode: StartMode, offer: str = "", typed: bool = False) -> None:
        """`offer` is the question as in a PendingLaunch; `typed`: the command has just been typed for this,
        and nobody has seen yet which devices it asks for."""
        app_state = self._app_state
        if not app_state.options.command:
            enter = _YES.get(mode, "run") if app_state.selection.decided else "next"
            self.edit(then=partial(self._launch, mode, typed=True), enter=enter)
        elif not app_state.is_example and self._cannot_start():
            return
        elif not app_state.selection.decided or (typed and app_state.proposed):
            self._offer_devices(mode)
        elif app_state.is_example and app_state.selection.cpu_only:
            self._cannot_start()
        elif self.pending is None and self._confining is None:
            from gputui.tui import start_launch

            self._view.show_message("checking the selected GPUs …", kind="passing")
            held = start_launch.hold_selected(app_state, self._environ)
            pending = PendingLaunch(app_state, time.monotonic(), mode, *held, offer)
            if app_state.selection.cpu_only:
                # No device is read: this works where no driver answers.
                self.start_or_ask(pending)
            else:
                self.pending = pending
                self._sampler.ask()

    def _offer_devices(self, mode: StartMode) -> None:
        """Ask whether to run on the devices that the command asks for, or on the best free one; where too few
        are free, whether to wait in line."""
        before = self._app_state
        offered, why, where = self._offered()
        if not offered.selection.decided:
            if offered.short_of is not None:
                self._view.set_app_state(offered)
                self.wait_in_line()
            else:
                self._view.show_message(why, "warn")
            return
        self._view.set_app_state(offered)
        question = f"Run on {where}?"
        elsewhere = before.label and not before.is_example
        free = all(offered.verdicts[device.key].free for device in offered.selected)
        if elsewhere or offered.selection.cpu_only or offered.in_line or not free:
            # One question is enough: the other one tells what speaks against a start.
            self._launch(mode, "" if offered.selection.cpu_only else question)
            return

        def answered(answer: Answer | None) -> None:
            if answer in _MODES:
                self._launch(_MODES[answer] or mode)
            else:
                self._withdraw(offered)

        self._view.open(self._offer(mode, question, self._reasons_of(offered, why)), answered)

    def with_devices(self, does: str, then: Then) -> None:
        """Call `then` with devices selected. Where none are, ask first about the best free ones; `does`
        begins the question ("Check")."""
        from gputui.tui.screens.confirm import ConfirmScreen

        if self._app_state.selection.decided:
            then()
            return
        offered, why, where = self._offered()
        if not offered.selection.decided:
            self._view.show_message(why, "warn")
            return
        self._view.set_app_state(offered)

        def answered(answer: Answer | None) -> None:
            if answer == "run":
                then()
            else:
                self._withdraw(offered)

        reasons = self._reasons_of(offered, why)
        self._view.open(
            ConfirmScreen(self._view, f"{does} {where}?", reasons, "run", line=offered.launch.line), answered
        )

    def _offered(self) -> tuple[AppState, str | None, str]:
        """The app state with the devices that the command asks for, or with the best free one; why these, or
        why none; and their names: "GPU 4 (the best free)"."""
        before = self._app_state
        if not before.rows:
            return before.clear(), select_first(before.screen.keymap), ""
        offered, why = before.with_command_read(again=True)
        says = offered.command_choice.words if offered.command_choice else ""
        if not says:
            offered, why = before.select_best(1)
        as_said = f"as {says} says"
        if offered.suggestion is not before.suggestion and offered.suggestion is not None:
            as_said, why = _best(len(offered.selection)), offered.suggestion.why
        return offered, why, f"{offered.selected_in_words} ({as_said})"

    def _reasons_of(self, offered: AppState, why: str | None) -> list[str]:
        return [each for each in (why, *offered.warnings) if each]

    def _offer(self, mode: StartMode, question: str, reasons: Sequence[str] = ()) -> ConfirmScreen:
        """A question that offers a launch; one that is to be the command may be another one instead."""
        from gputui.tui.screens.confirm import ConfirmScreen

        others: tuple[Answer, ...] = ("detach", "return") if mode == "become" else ()
        line, yes = self._app_state.launch.line, _YES.get(mode, "yes")
        return ConfirmScreen(self._view, question, reasons, "run", yes, others, line=line)

    def _withdraw(self, offered: AppState) -> None:
        """Clear the selection that was offered, unless it has changed."""
        now = self._app_state
        if now.selection == offered.selection:
            self._view.set_app_state(now.clear())

    def _cannot_start(self) -> bool:
        """Whether the command cannot start; the reason is shown."""
        lack = self._lack(self._app_state)
        if lack is not None:
            self._view.show_message(*lack)
        return lack is not None

    def _lack(self, app_state: AppState) -> tuple[str, str] | None:
        """The reason that the command of an app state cannot start, and the style of the message; None where
        it can."""
        options, keymap, launch = app_state.options, app_state.screen.keymap, app_state.launch
        edit, page, ask = (key_of(action, keymap) for action in ("edit", "launch_page", "command"))
        if app_state.is_example:
            return f"the demo's example is only rehearsed on its GPUs; press {edit} to type your own", ""
        if options.nodes > 1 and not options.rendezvous:
            return f"the first machine is not named yet: press {page}, then first machine", "warn"
        refused = launch.refused or app_state.unclaimed
        if refused is not None:
            return refused, "lost"
        if launch.own is not None:
            # Devices are never claimed for a command that will use others.
            words = f"the command itself uses {launch.own.words}; press {ask} to select those GPUs"
            return words, "warn"
        missing = line_in_one_word(options.command, options.directory)
        missing = missing or missing_program(launch, self._environ)
        if missing is None:
            return None
        # Where the message has a remedy, there is no room for the key.
        asked = ";" not in missing
        return f"{missing}: press {edit} to edit the command" if asked else missing, "lost"

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

    def start_or_ask(self, pending: PendingLaunch, unread: str = "") -> None:
        """Start the launch, but ask first where one of its devices is not free, others wait for it, the box
        is not this machine, or its devices are `unread`."""
        before, allocation = self._app_state, pending.allocation
        self._view.clear_message()
        if not before.selection.decided:
            allocation.release()
            self._view.show_message("the selected GPUs are no longer present", "lost")
            return
        if self._refused(pending):
            return
        reasons = self._reasons(pending, unread)
        if not reasons and not pending.offer:
            self._start(pending)
        else:
            self._asking = pending
            instead = None if unread else self._instead(pending)
            asks = self._question(pending, reasons, instead)
            self._view.open(asks, partial(self._answered, pending, before, instead))

    def _question(
        self, pending: PendingLaunch, reasons: Sequence[str], instead: AppState | None
    ) -> ConfirmScreen:
        """The question what to do about the reasons. Enter never starts the launch in spite of them: it takes
        free devices, or else waits in line."""
        from gputui.tui.screens.confirm import ConfirmScreen

        if not reasons:
            return self._offer(pending.mode, pending.offer)
        ask = partial(ConfirmScreen, self._view, warns=True, line=(instead or self._app_state).launch.line)
        # (Waiting does not help where no claim can be made.)
        wait = self._wait_question() if pending.queue is not None or self._not_free(pending) else None
        if instead is not None:
            best = (
                f" ({_best(len(instead.selection))})"
                if instead.suggested and not instead.suggested.kept
                else ""
            )
            question = f"Use {instead.selected_in_words}{best} instead?"
            others: tuple[Answer, ...] = ("run", "wait") if wait else ("run",)
            return ask(question, reasons, "instead", _YES.get(pending.mode, "yes"), others)
        if wait is not None:
            return ask(wait, reasons, "wait", offers=("run",))
        return ask(pending.offer or "Start anyway?", reasons, None, offers=("run",))

    def _instead(self, pending: PendingLaunch) -> AppState | None:
        """The app state with free devices in place of those of the launch that are not free; None where too
        few are free, or others wait for them, or the command names its devices."""
        now, taken = self._app_state, self._not_free(pending)
        if not taken or now.intent.devices is not None:
            return None
        found, _ = now.replaced([device for device in now.selected if device.key in taken])
        return None if found.selection == now.selection or found.in_line or found.contradiction else found

    def _wait_question(self) -> str | None:
        """The question whether to wait in line for the selected devices, None where nobody can."""
        from gputui.tui.wait_request import what_it_does

        now = self._app_state
        if (self._sampler.simulated is None) if now.label else self._lack(now):
            return None
        try:
            return what_it_does("", now)
        except GroupingError:
            return None

    def _reasons(self, pending: PendingLaunch, unread: str) -> tuple[str, ...]:
        """Why the launch does not start at once, by the last reading."""
        now, snapshot, queue = self._app_state, pending.allocation.snapshot, pending.queue
        limits = now.limits if now.selected else None
        # One line per device: its observed use is more informative than its claim.
        lines = {each.key: each.text(snapshot) for each in pending.allocation.conflicts}
        lines |= not_free_lines(self._not_free(pending), now.box)
        found = [
            unread,
            *(lines.get(key) for key in pending.app_state.selection),
            limits.unknown if limits else None,
            now.contradiction,
            queue.text() if queue else None,
        ]
        if now.label and not now.is_example:
            found.insert(0, now.starts_elsewhere)
        return tuple(filter(None, found))

    def _not_free(self, pending: PendingLaunch) -> dict[str, NotFree]:
        """The devices of the launch that are not free in the last reading."""
        now, before = self._app_state, pending.app_state
        return not_free(before.selection, before.verdicts_when_selected, now.box, now.verdicts)

    def _refused(self, pending: PendingLaunch) -> bool:
        """Whether the launch has a device that is never taken, whatever the user answers. Then the reason is
        shown and the launch ends."""
        from gputui.allocating.allocation import answer_to

        found = self._not_free(pending)
        never = {key: each for key, each in found.items() if answer_to(each.verdict) == "never"}
        if never:
            pending.allocation.release()
            words = not_free_lines(never, self._app_state.box).values()
            self._view.show_message("; ".join(words), "lost")
        return bool(never)

    def ask_without_reread(self) -> None:
        """Ask about a launch whose devices could not be read again in time."""
        pending = self.pending
        if pending is None:
            return
        if time.monotonic() - pending.since > max(_PATIENCE, 3 * self._sampler.took):
            self.pending = None
            self.start_or_ask(
                pending, "the selected GPUs could not be read again: the driver does not answer"
            )

    def _answered(
        self, pending: PendingLaunch, before: AppState, instead: AppState | None, answer: Answer | None
    ) -> None:
        """Act on the answer to the question of `start_or_ask`, which was asked in the app state `before`, and
        has offered the devices of `instead`."""
        self._asking = None
        if answer in _MODES and self._refused(pending):
            return
        now = self._app_state
        # Readings continued behind the question: the answer applies only to the selection as it was asked.
        same = (now.selection, now.options) == (before.selection, before.options)
        if answer in _MODES and same and before.selection.decided:
            self._start(replace(pending, mode=_MODES[answer] or pending.mode))
            return
        pending.allocation.release()
        if answer in (None, "back"):
            if pending.offer:
                self._withdraw(before)
        elif not same:
            self._view.show_message("the selected GPUs have changed in the meantime: look again", "lost")
        elif answer == "wait" and instead is None:
            self._join_line("")
        elif answer == "wait":
            self.wait_in_line()
        elif answer == "instead" and instead is not None:
            self._view.set_app_state(now.with_devices(instead.selection.keys))
            self._launch(pending.mode)

    def _start(self, pending: PendingLaunch) -> None:
        """Start the launch once its confinement is settled; only rehearse the example of a demo."""
        from gputui.tui import start_launch

        if self._app_state.is_example:
            pending.allocation.release()
            text = start_launch.rehearse(self._app_state, self._sampler.simulated)
            self._view.set_app_state(self._app_state.clear())
            self._view.show_message(text)
            return
        self._confining = pending
        found = partial(self._start_confined, pending)
        start_launch.when_confined(self._view, self._app_state, pending.allocation, self._environ, found)

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
        count = start_launch.count_of(self._app_state)
        not_kept = remember(self._environ, self._app_state.options, count, self._clock())
        warning = "; ".join(filter(None, (not_kept, *(notice.text for notice in allocation.notices))))
        if pending.mode == "become":
            app.exit(Outcome(launch=launch, allocation=allocation, warning=warning or None))
            return
        if pending.mode == "return":
            ended = allocation.start(lambda lease: self.lend_terminal(launch, lease=lease))
            if ended is None:
                return
            text, good = ended.text, ended.good
        else:
            request = start_launch.request_of(pending.app_state)
            text, good = allocation.start(
                lambda lease: start_launch.as_job(launch, self._environ, lease, request, allocation.labels)
            )
            if good:
                text += ": D shows it"
                self._give_away()
        self._view.show_message(f"{text}; {warning}" if warning else text, "" if good else "lost")

    def _give_away(self) -> None:
        """Clear the selection: the devices belong to a job from now on, and the next launch is for others."""
        if self._app_state.selected:
            self._view.set_app_state(self._app_state.clear())

    def lend_terminal(
        self, launch: Launch, line: str | None = None, lease: Lease | None = None
    ) -> Returned | None:
        """Lend the terminal to a command, shown as `line`, with the lease on its devices. Returns its end;
        None where we end, too."""
        from gputui.tui import start_launch

        app = self._view.app
        ended = start_launch.run_and_return(
            app, launch, self._environ, lease, self._end_without_terminal, line
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
        app_state = self._app_state
        if not app_state.options.command:
            self.edit("command to run when it is your turn", then=self.wait_in_line, enter="next")
            return
        # Nothing is started from the box of a demo or a recording.
        if not app_state.label and self._cannot_start():
            return
        from gputui.tui.screens.line_input import LineScreen
        from gputui.tui.wait_request import what_it_does

        def question(line: str) -> str:
            return what_it_does(line, self._app_state)

        def answered(line: str | None) -> None:
            if line is not None:
                self._join_line(line)

        keys = [("1-9", "another number"), ("esc", "no")]
        try:
            prompt = question("")
            keys.insert(0, ("⏎", "yes"))
        except GroupingError as error:
            prompt = str(error)
        line = LineScreen(prompt, check=lambda typed: question(typed) and None, explain=question, keys=keys)
        self._view.open(line, answered)

    def _join_line(self, line: str) -> None:
        """Start a job that waits for what the line says, "" for the selected devices."""
        from gputui.tui import start_launch
        from gputui.tui.wait_request import read_wait_request

        now, simulated = self._app_state, self._sampler.simulated
        if now.label and simulated is None:
            self._view.show_message(f"nothing is really queued here ({now.label})")
            return
        try:
            # The selected devices may have vanished since the question.
            request = read_wait_request(line, now)
        except GroupingError as error:
            self._view.show_message(str(error), "lost")
            return
        text, good = start_launch.in_line(now, self._environ, request, simulated)
        if good:
            self._give_away()
        self._view.show_message(text, "" if good else "lost")
