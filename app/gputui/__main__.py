"""`python -m gputui`, the same program as the `gputui` command."""

import sys

from gputui.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
