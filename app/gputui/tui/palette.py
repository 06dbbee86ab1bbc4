"""The command palette, and its search: actions by the words that people type, only then by loose letters."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.command import CommandPalette, DiscoveryHit, Hit, Provider

if TYPE_CHECKING:
    from textual.command import Hits


class Palette(CommandPalette):
    """Textual's palette, without its end at page up or down while its list is not laid out."""

    def _action_command_list(self, action: str) -> None:
        # (Textual 8.2.8, on a low terminal, and for a moment while the list is filled.)
        with contextlib.suppress(KeyError):
            super()._action_command_list(action)


def score(query: str, title: str, about: str) -> float:
    """How well each word of a query is found: at the beginning of a word of the title, then within one, then
    the same in what is said about it. 0 where a word is nowhere."""
    return min((_score(word, title.lower(), about.lower()) for word in query.lower().split()), default=0.0)


def _score(word: str, title: str, about: str) -> float:
    for text, at_beginning, within in ((title, 1.0, 0.8), (about, 0.6, 0.4)):
        if f" {word}" in f" {text}":
            return at_beginning
        if word in text:
            return within
    return 0.0


class ActionProvider(Provider):
    """Textual's provider of system commands finds "Show the queue" for "pow": letters far apart count there.

    Here they count only where no action has the words.
    """

    @property
    def _commands(self) -> list[SystemCommand]:
        return list(self.app.get_system_commands(self.screen))

    async def discover(self) -> Hits:
        for command in self._commands:
            yield DiscoveryHit(command.title, command.callback, help=command.help)

    async def search(self, query: str) -> Hits:
        scored = [(score(query, each.title, each.help), each) for each in self._commands]
        matcher = self.matcher(query)
        if not any(found for found, _ in scored):
            scored = [(matcher.match(each.title), each) for _, each in scored]
            for found, each in scored:
                if found > 0:
                    yield Hit(found, matcher.highlight(each.title), each.callback, help=each.help)
            return
        for found, each in scored:
            if found > 0:
                yield Hit(found, each.title, each.callback, help=each.help)
