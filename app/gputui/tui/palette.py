"""The command palette and its search: actions by the user's words, and only then by scattered letters."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.command import CommandPalette, DiscoveryHit, Hit, Provider

from gputui.tui.actions import ACTIONS, in_palette

if TYPE_CHECKING:
    from textual.command import Hits

_WORDS = re.compile(r"[^\W_]+(?:[.-]\w+)*|[^\w\s]+")
_ACTIONS = {in_palette(action): action for action in ACTIONS}


class Palette(CommandPalette):
    """Textual's palette, without its crash at page up or down while its list is not laid out."""

    def _action_command_list(self, action: str) -> None:
        # Textual 8.2.8 raises KeyError on a low terminal, and for a moment while the list is filled.
        with contextlib.suppress(KeyError):
            super()._action_command_list(action)


def score(query: str, title: str, about: str, others: str = "") -> float:
    """How well the worst word of a query is found, 0 where a word is nowhere. The best match is a word of the
    title, then the beginning of one; then a word of the description or of the search words (`others`, the
    group among them), and the beginning of one of these; last, any part of a word."""
    texts = tuple(_WORDS.findall(text.lower()) for text in (title, about, others))
    return min((_score(word, texts) for word in query.lower().split()), default=0.0)


_WHOLE, _BEGINNING, _WITHIN = (1.0, 0.8, 0.75), (0.9, 0.7, 0.6), (0.3, 0.2, 0.1)
"""The score of a match in the title, in the description, and in the other words."""


def _score(word: str, texts: Sequence[Sequence[str]]) -> float:
    best = 0.0
    for place, words in enumerate(texts):
        if word in words:
            best = max(best, _WHOLE[place])
        elif begun := [len(each) for each in words if each.startswith(word)]:
            # The query "pow" more likely means "power" than "PowerShell".
            best = max(best, _BEGINNING[place] + 0.04 * len(word) / min(begun))
        elif any(word in each for each in words):
            best = max(best, _WITHIN[place])
    return best


def _score_of(query: str, command: SystemCommand) -> float:
    action = _ACTIONS.get(command.title)
    if action is None:
        group, _, title = command.title.partition(": ")
        return score(query, title, command.help, group)
    return score(query, action.title, command.help, f"{action.also} {action.group}")


class ActionProvider(Provider):
    """Textual's provider of system commands finds "Show the queue" for "pow": it matches scattered letters.

    Here they match only where no action has the words.
    """

    @property
    def _commands(self) -> list[SystemCommand]:
        return list(self.app.get_system_commands(self.screen))

    async def discover(self) -> Hits:
        for command in self._commands:
            yield DiscoveryHit(command.title, command.callback, help=command.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        scored = [(_score_of(query, each), each) for each in self._commands]
        by_words = any(found for found, _ in scored)
        for found, each in scored:
            found = found if by_words else matcher.match(each.title)
            if found > 0:
                shown = each.title if by_words else matcher.highlight(each.title)
                yield Hit(found, shown, each.callback, help=each.help)
