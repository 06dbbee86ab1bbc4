"""`python -m goldens.calls PART DIR`: calls of the command line in this process, whose clock stands still.

PART is a demo box, or "words": the calls that are the same on every box (help, wrong calls, saved records).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from goldens.boxes import stand_still

_TRAIN = ("--", "python", "train.py", "--lr", "3e-4")
_LAUNCHERS = ("auto", "python", "torchrun", "accelerate", "deepspeed", "mpirun")
_FORMS = ("sh", "fish", "powershell", "dotenv", "docker", "sbatch", "ray", "accelerate", "vscode", "json")
_JOB_ACTIONS = ("list", "log", "attach", "wait", "stop", "rerun", "show", "forget")
_COMMANDS = (
    ("torchrun", "--nproc-per-node=2", "train.py"),
    ("accelerate", "launch", "train.py"),
    ("deepspeed", "--num_gpus=2", "train.py"),
    ("mpirun", "-np", "2", "python", "train.py"),
    ("vllm", "serve", "model", "-tp", "2"),
    ("CUDA_VISIBLE_DEVICES=1", "python", "train.py"),
    ("sh", "-c", "python train.py --out 'a b'"),
)


def _calls(text: str) -> Iterator[tuple[str, ...]]:
    """The words of each line; "(nothing)" is a call without words."""
    for line in text.strip().splitlines():
        yield () if line.strip() == "(nothing)" else tuple(shlex.split(line))


def of_a_box() -> Iterator[tuple[str, ...]]:
    """Calls that read a box."""
    for name in ("ls", "people", "claims", "queue"):
        yield from ((name,), (name, "--json"))
    yield from (("ls", "--details"), ("ls", "--format", "{free}/{total} free"), ("ls", "--format", "{nope}"))
    yield from (("topo",), *(("topo", option) for option in ("--json", "--tree", "--p2p")))
    yield from (("metrics",), ("record", "a.json"), ("record", "--anonymous", "b.json"))
    for number in ("1", "2", "3", "4", "8", "auto", "99", "0", "x"):
        yield from (("pick", "-n", number), ("pick", "-n", number, "--format", "json"))
    for words in _calls(
        """
        (nothing)
        --gpus 0
        --gpus 1,0
        --gpus 1,0 --force
        --gpus 99
        --gpus 0,0
        --gpus ''
        --gpus none
        -n 2 --why
        -n 2 --ids uuid
        -n 2 --format env
        -n 2 --group tp=2
        -n 2 --order fastest
        -n 2 --order emptiest
        -n 1 --min-free 20G
        -n 1 --min-free 900G
        -n 1 --max-util 5
        -n 2 --never 0,1
        -n 2 --prefer 1
        -n 1 --mine
        -n auto --parameters 7B
        --vendor amd
        --nope
        """
    ):
        yield ("pick", *words)
    for launcher in _LAUNCHERS:
        yield ("run", "-n", "2", "--dry-run", "--launcher", launcher, *_TRAIN)
    for command in _COMMANDS:
        yield from (("run", "-n", "2", "--dry-run", "--", *command), ("run", "--dry-run", "--", *command))
    for words in _calls(
        """
        -n 1
        --gpus 1,0
        --gpus 1,0 --force
        --gpus none
        -n 99
        -n 2 --env 'A=b c'
        -n 2 --ids uuid
        -n 2 --threads 4
        -n 2 --threads near
        -n 2 --numa-binding --launcher torchrun
        -n 2 --logs logs --launcher torchrun
        -n 2 --processes 1
        -n 2 --directory /
        -n 2 --why
        -n 2 --confine never
        -n 2 --nodes 2 --rendezvous node1 --launcher torchrun
        """
    ):
        yield ("run", "--dry-run", *words, *_TRAIN)
    for form in _FORMS:
        yield ("export", "-n", "2", "--as", form, *_TRAIN)
    yield ("export", "-n", "2", "--as", "docker", "--image", "torch:latest", "--", "torchrun", "train.py")
    for words in _calls(
        """
        (nothing)
        --json
        -n 2
        -n 2 --json
        -n 2 --weights-only
        -n 2 --lora 16
        -n 2 --optim adamw8bit --checkpointing
        -n 99
        """
    ):
        yield ("plan", "--parameters", "7B", *words)
    for words in _calls(
        """
        -n 2 --vary launcher=python,torchrun --vary env:X=0,1
        --gpus 1,0 --force --vary launcher=python,torchrun --vary env:X=0,1
        --vary n=1,2
        --vary gpus=0,1 --force
        -n 1 --vary arg:--lr=1,2 --vary arg:--bf16
        -n 99 --vary launcher=python,torchrun --vary env:X=0,1
        -n 1 --vary word:x=1
        -n 1 --vary threads=1,near
        --gpus none --vary launcher=python,torchrun --vary env:X=0,1
        """
    ):
        yield ("compare", "--dry-run", *words, *_TRAIN)
    braces = ("--", "python", "train.py", "--seed", "{1..3}", "--lr={0.1,0.01}")
    for words in _calls(
        """
        -n 1
        -n 2
        -n 2 --gpus 0,1,2,3
        -n 1 --memory 1G
        --gpus none
        -n 99
        -n 1 --memory 900G
        --gpus none -n 1
        -n 1 --why
        """
    ):
        yield ("each", "--dry-run", *words, *braces)


def of_words() -> Iterator[tuple[str, ...]]:
    """Help, wrong calls, and saved records."""
    from gputui.cli.subcommands import SUBCOMMANDS

    yield from (
        ("--help",),
        ("--version",),
        ("--demo", "list"),
        ("nope",),
        ("rum",),
        ("--demo", "nope", "ls"),
    )
    yield from ((name, depth) for name in SUBCOMMANDS for depth in ("--help", "--help-all"))
    yield from ((name, "--nope") for name in SUBCOMMANDS)
    yield from (("jobs", action, "--help") for action in _JOB_ACTIONS)
    yield from (("completion", shell) for shell in ("bash", "zsh", "fish", "tcsh"))
    for name in ("run", "export", "check", "compare", "each", "plan"):
        yield from ((name,), (name, "--"), (name, "-n", "2"))
    yield from (("jobs",), ("jobs", "--json"), ("jobs", "list"), ("jobs", "nope"))
    for id in ("k3f9", "k3", "zzzz"):
        yield from (("jobs", each, id) for each in ("log", "show", "wait", "stop", "attach"))
    yield from (
        ("jobs", "log", "--plain", "k3f9"),
        ("jobs", "log", "-n", "1", "k3f9"),
        ("jobs", "show", "--command", "k3f9"),
    )
    yield ("jobs", "rerun", "k3f9", "--dry-run", "--demo=shared")
    yield from (
        ("launches",),
        ("launches", "--json"),
        ("launches", "name", "1", "a"),
        ("launches", "forget", "a"),
    )
    for name, kept in (("compare", "r8c4"), ("each", "z5v4")):
        yield from ((name, "--list"), (name, "--list", "--json"))
        for id in (kept, kept[:1], "zzzz", "b7d2", ""):
            yield from ((name, "--show", id), (name, "--show", id, "--json"))
        yield from ((name, "--list", "--", "x"), (name, "--forget", "zzzz"), (name, "--list", "--show", kept))
    yield from (("compare", "--show", "r8c4", "--csv"), ("compare", "--list", "--csv"))
    demo = "--demo=idle"
    train = ("--", "python", "train.py")
    for words in _calls(
        """
        (nothing)
        --vary nope=1,2
        --vary launcher
        --vary env:X=1,1
        --vary env:X=1,2 --less
        --vary n=1,2 -n 1
        --vary env:X=1,2 --vary env:X=3
        --vary word:A=1,2
        --vary env:X=1,2 --metric '('
        --vary env:X=1,2 --repeat 0
        --vary n=0,1
        --vary launcher=nope,python
        --vary -lr=1,2
        --vary n={0..999},1000
        """
    ):
        yield ("compare", demo, "--dry-run", *words, *train)
    for words in _calls(
        """
        -n 1 -- python train.py
        --from-file /nope
        --from-file /dev/null
        --from-file x -- python train.py
        --jobs 0
        --retry -1
        --resume zzzz
        --resume b7d2
        --resume z5v4 --dry-run
        -n 1 -- x '{1..20000}'
        --saved a -- x
        -n 1 -- x '{1..2}' --json
        --memory 1G --gpus none -- x '{1,2}'
        -n 1 -- 'A={1,2}'
        """
    ):
        yield ("each", demo, "--dry-run", *words) if "--resume" not in words else ("each", *words)
    yield ("each", demo, "-n", "1", "--", "x", "{1,2}")
    yield from (
        ("each", "--forget", "z5v4"),
        ("each", "--list"),
        ("compare", "--forget", "r8c4"),
        ("compare", "--list"),
    )


def answer(words: Sequence[str]) -> str:
    """The output of a call, and its exit status."""
    from gputui.cli.main import main

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except Exception as error:  # noqa: BLE001 - a call that fails so is an answer, too
            status = f"{type(error).__name__}: {error}"
    said = [each.buffer.getvalue().decode(errors="replace") for each in (out, err)]  # type: ignore[attr-defined]
    written = [f"--- {name}\n{Path(name).read_text()}" for name in words if name in ("a.json", "b.json")]
    return "".join((f"status {status}\n--- out\n{said[0]}--- err\n{said[1]}", *written))


def file_name(number: int, words: Sequence[str]) -> str:
    """A name that sorts in the order of the calls and contains the call."""
    return f"{number:03d} {re.sub('[^A-Za-z0-9=,._-]+', ' ', ' '.join(words)).strip()[:90]}"


def main() -> None:
    part, folder = sys.argv[1], Path(sys.argv[2]) / "calls" / sys.argv[1]
    folder.mkdir(parents=True)
    os.chdir(os.environ["HOME"])
    stand_still()
    from goldens.masks import masked
    from goldens.records import leave

    leave(Path(os.environ["XDG_STATE_HOME"]))
    calls = of_words() if part == "words" else ((each[0], f"--demo={part}", *each[1:]) for each in of_a_box())
    for number, words in enumerate(calls):
        (folder / file_name(number, words)).write_text(
            f"$ gputui {' '.join(words)}\n" + masked(answer(words))
        )


if __name__ == "__main__":
    main()
