"""A program that prints the bytes it was started with: argv, environment, directory. Run with -S -E."""

import json
import os
import sys
from pathlib import Path

_argv = Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]
_environ = Path("/proc/self/environ").read_bytes().split(b"\0")[:-1]
_script = _argv.index(os.fsencode(sys.argv[0]))
print(
    json.dumps(
        {
            "argv": [word.hex() for word in _argv[_script:]],
            "environ": {name.hex(): value.hex() for name, _, value in (e.partition(b"=") for e in _environ)},
            "directory": os.fsencode(Path.cwd()).hex(),
            "pid": os.getpid(),
        }
    ),
    flush=True,
)
