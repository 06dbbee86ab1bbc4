"""The launch as a line for a shell: any POSIX shell, fish, PowerShell (5.1, and 7 of every kind).

Rules of PowerShell: about_Quoting_Rules, about_Environment_Variables and about_Parsing of Microsoft's
documentation.
"""

from __future__ import annotations

from gputui.inventory.quoting import Quoting, assignment, fish, posix, powershell
from gputui.launching.exports.form import final_changes, need_text
from gputui.launching.launch import Launch


def to_sh(launch: Launch) -> str:
    """Return a line for any POSIX shell; without a command the variables alone, for `eval` or `source`."""
    if launch.argv:
        return launch.render(posix)
    set_to = " ".join(assignment(name, value, posix) for name, value in launch.changes if value is not None)
    unset = " ".join(name for name, value in launch.changes if value is None)
    return "\n".join([*([f"unset {unset}"] if unset else []), *([f"export {set_to}"] if set_to else [])])


_FISH_WORDS = frozenset(
    (
        *(".", ":", "[", "_", "abbr", "and", "argparse", "begin", "bg", "bind", "block", "break"),
        *("breakpoint", "builtin", "case", "cd", "command", "commandline", "complete"),
        *("contains", "continue", "count", "disown", "echo", "else", "emit", "end", "eval", "exec"),
        *("exit", "false", "fg", "for", "function", "functions", "history", "if", "jobs", "math"),
        *("not", "or", "path", "printf", "pwd", "random", "read", "realpath", "return", "set"),
        *("set_color", "source", "status", "string", "switch", "test", "time", "true", "type"),
        *("ulimit", "wait", "while", "fish_indent", "fish_key_reader", "{", "}"),
    )
)
"""fish's own words (`builtin --names`, 3.6 and 4.0). Quotes do not hide them: `'if'` begins a block."""


def to_fish(launch: Launch) -> str:
    """Return one line that sets and unsets variables for the command only; without a command, lines for
    `source`."""
    if not launch.argv:
        return "\n".join(
            f"set -e {name}" if value is None else f"set -gx {name} {fish(value)}"
            for name, value in final_changes(launch).items()
        )
    return launch.render(fish, _fish_program)


def _fish_program(word: str, form: Quoting) -> str:
    quoted = form(word)
    if word in _FISH_WORDS:
        return f"command {quoted}"
    # Unquoted, `A=1` would be an assignment.
    return f"'{word}'" if quoted == word and "=" in word else quoted


def to_powershell(launch: Launch) -> str:
    """Return one line of statements; PowerShell has no variables for a single command, so they stay set in
    the session.

    Comments and a check of the version precede it only where an older PowerShell would behave differently.
    Without a command it returns the variables alone, one per line.
    """
    need_text(launch, "a PowerShell line")
    above, statements = [], []
    variable, none = launch.vendor.visibility.variable, launch.vendor.visibility.none_in_words
    for name, value in final_changes(launch).items():
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
        statements.insert(0, f"Set-Location -LiteralPath {powershell(launch.directory)} -ErrorAction Stop")
    command = " ".join(["&", _in_quotes(launch.argv[0]), *(powershell(word) for word in launch.argv[1:])])
    return "\n".join([*above, "; ".join([*statements, command])])


def _in_quotes(word: str) -> str:
    """Return the word in quotes: PowerShell parses a bare word where it expects an expression or a program's
    name."""
    text = powershell(word)
    return text if text.startswith("'") else f"'{text}'"


def _since_7_5(name: str) -> str:
    """Return a line that stops a PowerShell in which the empty value would silently be none at all (.NET
    before 9)."""
    version = "$PSVersionTable.PSVersion.Major * 100 + $PSVersionTable.PSVersion.Minor"
    return f"if ({version} -lt 705) {{ throw '{name} is to be empty, which needs PowerShell 7.5' }}"
