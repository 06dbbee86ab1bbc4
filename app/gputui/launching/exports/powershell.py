"""Statements for PowerShell: 5.1, and 7 of every kind.

Rules: about_Quoting_Rules, about_Environment_Variables and about_Parsing of Microsoft's documentation.
"""

from __future__ import annotations

from gputui.launching.exports.form import need_text, settled
from gputui.launching.launch import Launch
from gputui.launching.quoting import powershell as quoted


def to_powershell(launch: Launch) -> str:
    """One line of statements; PowerShell has no variables for one command, so they stay set in the session.

    Lines above it, comments and a check of the version, are there only where an older PowerShell would do
    otherwise. Without a command the variables alone, a line each.
    """
    need_text(launch, "a PowerShell line")
    above, statements = [], []
    variable, none = launch.vendor.visibility.variable, launch.vendor.visibility.none_in_words
    for name, value in settled(launch).items():
        if value == "" and name == variable:
            above.append(f"# {variable}={none} is no device; before 7.5 no variable can be set to nothing.")
            value = none
        elif value == "":
            above.append(_since_7_5(name))
        statements.append(f"$env:{name} = {'$null' if value is None else _in_quotes(value)}")
    if not launch.argv:
        return "\n".join([*above, *statements])
    if any(word == "" or '"' in word for word in launch.argv[1:]):
        above.append("# Before 7.3 an empty argument is left out, and double quotes in one are lost.")
    if launch.directory:
        statements.insert(0, f"Set-Location -LiteralPath {quoted(launch.directory)} -ErrorAction Stop")
    command = " ".join(["&", _in_quotes(launch.argv[0]), *(quoted(word) for word in launch.argv[1:])])
    return "\n".join([*above, "; ".join([*statements, command])])


def _in_quotes(word: str) -> str:
    """Where an expression is expected, or a program's name, a bare word would be something of its own."""
    text = quoted(word)
    return text if text.startswith("'") else f"'{text}'"


def _since_7_5(name: str) -> str:
    """A line that stops where the empty value would silently be none at all (.NET before 9)."""
    version = "$PSVersionTable.PSVersion.Major * 100 + $PSVersionTable.PSVersion.Minor"
    return f"if ({version} -lt 705) {{ throw '{name} is to be empty, which needs PowerShell 7.5' }}"
