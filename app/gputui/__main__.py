"""`python -m gputui`, the same program as the `gputui` command."""

from gputui.cli.main import entry

if __name__ == "__main__":
    entry()
