"""From what is chosen to what runs: editing, copying, claiming, reading again, asking, starting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from gputui.choosing.grouping import asked as number_asked
from gputui.choosing.not_free import not_free
from gputui.choosing.selection import Selection
from gputui.launching.clipboard import Copied, copy
from gputui.launching.shell_words import WordsError, assignments, command_line, shell_syntax, split
from gputui.launching.start import missing_program
from gputui.sources.sampler import Sampler
from gputui.tui.app_state import AppState
from gputui.tui.screens.choosing import Choosing, wrong_number
from gputui.tui.session import Outcome

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease

WAIT_PROMPT = "wait in line for how many, as a job?  2, or 4 tp=2   (⏎ waits, esc leaves)"

Way = Literal["become", "return", "detach"]
"""How a command is started: in place of the screen, while the screen waits, or as a job of its own."""


@dataclass(frozen=True, slots=True)
class _Launching:
    """Enter was pressed: on which app state, when (`time.monotonic`), and what is to become of the screen.

    `lease` holds the devices meanwhile, except those that another job has claimed: `claimed` has a line for
    each, by its key. `line` says who waits for such devices.
    """

    app_state: AppState
    since: float
    way: Way
    lease: Lease | None = None
    claimed: Mapping[str, str] = field(default_factory=dict)
    line: str | None = None


class Launching(Choosing):
    """A screen on which the launch of its app state is edited, copied and started."""

    _environ: Mapping[str, str]
    _clock: Callable[[], float]
    _launching: _Launching | None = None
    _asking: _Launching | None = None
    _plain: str | None = None

    def clear_message(self) -> None:
        """Say nothing any more."""

    def repaint(self) -> None:
        """Paint every cell."""

    @property
    def _sampler(self) -> Sampler | None:
        return getattr(self.app, "sampler", None)

    def action_edit(self) -> None:
        self._drop_launch()
        from gputui.tui.screens.line_input import LineScreen

        def wrong(line: str) -> str | None:
            try:
                split(line)
            except WordsError as error:
                return str(error)
            return None

        line = command_line(self.app_state.options.additions, self.app_state.options.command)
        prompt = "command (⏎ takes it, esc leaves it)"
        self.app.push_screen(LineScreen(prompt, line, "for example: python train.py", wrong), self._edited)

    def _edited(self, line: str | None) -> None:
        if line is None:
            return
        additions, command = assignments(split(line))
        self.set_app_state(
            replace(
                self.app_state, options=replace(self.app_state.options, command=command, additions=additions)
            )
        )
        odd = shell_syntax(command)
        if odd:
            self.say(f"{odd} is a plain argument here: for a shell, bash -c '…'", "warn")

    # Copying and launching

    def action_copy(self) -> None:
        if not self.app_state.selection.decided:
            self.say("choose devices first (space, 0-9, b), or c for CPU only", "warn")
            return
        self.copy_text(self.app_state.launch.line)

    def copy_text(self, text: str) -> None:
        """Put a text on the clipboard, and say how."""
        driver = self.app._driver

        def work() -> None:
            done = copy(text, self._environ, driver.write if driver else None)
            self.app.call_later(self._copied, text, done)

        # A tool may take its time (xclip on a dead display): not on the thread that answers keys.
        threading.Thread(target=work, daemon=True).start()

    def _copied(self, line: str, done: Copied) -> None:
        self.say(done.message, "" if done.sure else "warn")
        if not done.sure:
            # Nobody can say whether the terminal took it: it is printed when the screen is gone.
            self._plain = line

    def action_launch(self, way: Way = "become") -> None:
        if not self.app_state.options.command:
            self.action_edit()
        elif not self.app_state.selection.decided:
            self.say("choose devices first (space, 0-9, b), or c for CPU only", "warn")
        elif self._cannot_start():
            return
        elif self._launching is None and self._sampler is not None:
            self.say("reading the chosen devices again …")
            from gputui.tui import starting

            line = starting.others_in_line(self.app_state, self._environ)
            lease, claimed = starting.hold(self.app_state, self._environ)
            self._launching = _Launching(self.app_state, time.monotonic(), way, lease, claimed, line)
            self._sampler.ask()

    def _cannot_start(self) -> bool:
        """Whether the command lacks something; it has been said what."""
        if self.app_state.options.nodes > 1 and not self.app_state.options.rendezvous:
            self.say("the first of the machines is not named yet: L, first one", "warn")
            return True
        absent = missing_program(self.app_state.launch, self._environ)
        if absent is not None:
            self.say(f"{absent}: e edits the command", "lost")
        return absent is not None

    def _drop_launch(self) -> None:
        """Whatever was about to be started is not: its devices are given back."""
        if self._launching is not None and self._launching.lease is not None:
            self._launching.lease.release()
        self._launching = None

    def _launch_or_ask(self, launching: _Launching) -> None:
        """Launch what Enter was pressed on; first ask, where a device of it is not free or others wait."""
        app_state, asked = self.app_state, launching.app_state
        self.clear_message()
        if app_state.snapshot is None or not app_state.selection.decided:
            _give_back(launching.lease)
            self.say("the chosen devices are not there any more", "lost")
            return
        taken = not_free(asked.selection, asked.chosen_as, app_state.snapshot, app_state.verdicts)
        if taken or app_state.launch.own or launching.claimed or launching.line:
            self._ask(launching, taken)
        else:
            self._start(launching.way, launching.lease)

    def _ask(self, launching: _Launching, taken: Mapping[str, str], *more: str) -> None:
        """Ask whether to run all the same; `taken` has a line for each device that is not free."""
        from gputui.tui.screens.confirm import Answer, ConfirmScreen

        asked, way, lease = self.app_state, launching.way, launching.lease
        self._asking = launching

        def answered(answer: Answer | None) -> None:
            self._asking = None
            if answer == "wait":
                _give_back(lease)
                self.action_wait()
                return
            go = answer == "run"
            # Behind the question the box went on: yes was said to this selection and to no other.
            if go and (self.app_state.selection, self.app_state.options) == (asked.selection, asked.options):
                if asked.selection.decided:
                    self._start(way, lease)
                    return
            elif go:
                self.say("the chosen devices have changed meanwhile: look again", "lost")
            _give_back(lease)

        # (One line a device: what is to be seen on it says more than that it is claimed.)
        lines = {**launching.claimed, **taken}
        in_order = [lines[key] for key in launching.app_state.selection if key in lines]
        reasons = [*more, *in_order, *self._of_the_command()]
        reasons += [launching.line] if launching.line else []
        self.app.push_screen(ConfirmScreen(tuple(reasons), may_wait=bool(launching.line)), answered)

    def _of_the_command(self) -> tuple[str, ...]:
        """That the command asks for other devices, and which of those are not free."""
        own, app_state = self.app_state.launch.own, self.app_state
        if own is None:
            return ()
        if own.ignored or own.listed is None or app_state.snapshot is None:
            return (own.warning,)
        theirs = Selection(app_state.vendor.visibility.listed_keys(own.listed, app_state.snapshot.devices))
        return (own.warning, *not_free(theirs, {}, app_state.snapshot, app_state.verdicts).values())

    def _start(self, way: Way, lease: Lease | None) -> None:
        """Start the launch that stands there."""
        from gputui.tui import starting

        app_state = self.app_state
        found = [
            starting.remember(app_state, self._environ, self._clock()),
            *(lease.warnings if lease else ()),
        ]
        trouble = "; ".join(each for each in found if each)
        if way == "become":
            told = starting.warning(trouble) if trouble else None
            self.app.exit(Outcome(launch=app_state.launch, lease=lease), message=told)
            return
        if way == "return":
            ended = starting.run_and_return(self.app, app_state.launch, self._environ, lease)
            if ended.signal is not None:
                self.app.leave(128 + ended.signal)  # type: ignore[attr-defined]
                return
            text, good = ended.text, ended.good
            self.repaint()
        else:
            text, good = starting.as_job(app_state.launch, self._environ, lease)
        _give_back(lease)
        self.say(f"{text}; {trouble}" if trouble else text, "" if good else "lost")

    def action_wait(self) -> None:
        """In line for devices: as a job, which needs no screen to wait."""
        self._drop_launch()
        app_state = self.app_state
        if not app_state.options.command:
            self.action_edit()
            return
        if app_state.label:
            self.say("waiting is for this machine's devices", "warn")
            return
        if self._cannot_start():
            return
        from gputui.tui import starting
        from gputui.tui.screens.line_input import LineScreen

        def answered(line: str | None) -> None:
            if line and line.strip():
                text, good = starting.in_line(self.app_state, self._environ, *number_asked(line))
                self.say(text, "" if good else "lost")

        count = max(1, len(app_state.selection))
        self.app.push_screen(LineScreen(WAIT_PROMPT, str(count), "how many", wrong_number), answered)

    def on_unmount(self) -> None:
        """Leave no claim behind that nothing was started with."""
        for pending in (self._launching, self._asking):
            _give_back(pending.lease if pending else None)


def _give_back(lease: Lease | None) -> None:
    if lease is not None:
        lease.release()
