"""`gputui export`: the launch in another form, on stdout, on the clipboard or in a file."""

from __future__ import annotations

import contextlib
import os
import sys

from gputui.cli.common import DONE, Call, Parser, WrongCallError, print_line, say, say_notes, write_file
from gputui.cli.launch_call import add_force, add_launch_options, launch_of, launch_request
from gputui.cli.request_options import add_after_options
from gputui.launching.exports import ALIASES, DEFAULT, FORMS, ExportError, ExportOptions
from gputui.launching.launch import Launch
from gputui.launching.secrets import secret_in

_ABOUT = "\n".join(
    (
        "Print the launch in another form, copy it to the clipboard, or write it to a file.\n",
        *(f"  {name:<11} {form.about}" for name, form in FORMS.items()),
    )
)


def parser() -> Parser:
    made = Parser(
        "export",
        _ABOUT,
        common="--as -n --gpus --copy -o",
        example="gputui export -n 2 --as sbatch -o job.sh -- torchrun train.py",
    )
    made.usage = "gputui export [--as FORM] [-n N | --gpus LIST] [OPTION…] [-- COMMAND…]"
    form = made.add_mutually_exclusive_group()
    form.add_argument(
        "--as",
        dest="form",
        type=lambda word: ALIASES.get(word, word),
        choices=tuple(FORMS),
        default="sh",
        metavar="FORM",
        help="one of these forms, sh by default (also slurm for sbatch, k8s for kubernetes)",
    )
    form.add_argument("--json", dest="form", action="store_const", const="json", help="the same as --as json")
    where = made.add_mutually_exclusive_group()
    where.add_argument("--copy", action="store_true", help="copy to the clipboard instead of printing")
    where.add_argument(
        "-o", "--output", dest="file", metavar="FILE", help="write to FILE instead (- is stdout)"
    )
    made.add_argument("--image", metavar="NAME", help="image of the container (docker, compose, kubernetes)")
    made.add_argument("--name", help="name of the job, container or configuration")
    add_force(made)
    add_launch_options(made)
    add_after_options(made)
    return made


def main(args: Call) -> int:
    options = _options(args)
    launch = launch_of(launch_request(args, args.argv or ()))
    text = _text(args.form, launch, options)
    if (args.after, args.after_ok) != (None, None):
        say("note: this form does not wait for jobs of gputui; for Slurm's jobs, sbatch has --dependency")
    say_notes(FORMS[args.form].notes(launch, options))
    if args.copy:
        from gputui.launching.clipboard import copy

        copied = copy(text, os.environ)
        if not copied.asked:
            raise WrongCallError(copied.message)
        say(copied.message)
    elif options.file is not None:
        secret = secret_in(launch.argv, launch.changes)
        write_file(options.file, _encoded(text, args.form), private=secret is not None)
        say(f"wrote {options.file}")
    elif FORMS[args.form].utf8 and hasattr(sys.stdout, "buffer"):
        sys.stdout.flush()
        sys.stdout.buffer.write(_encoded(text, args.form))
    else:
        print_line(text)
    return DONE


def _options(args: Call) -> ExportOptions:
    """Return the options for the form. Raises WrongCallError for an option that the form does not have."""
    given = {name: getattr(args, name) for name in ("image", "name")}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in FORMS[args.form].takes:
            forms = " and ".join(form for form in FORMS if name in FORMS[form].takes)
            raise WrongCallError(f"--{name} is for {forms}, not for {args.form}")
    return ExportOptions(
        image=given.get("image", DEFAULT.image),
        nodes=args.nodes,
        name=given.get("name"),
        file=None if args.file in (None, "-") else args.file,
    )


def _text(form: str, launch: Launch, options: ExportOptions) -> str:
    try:
        return FORMS[form].write(launch, options)
    except ExportError as error:
        raise WrongCallError(f"--as {form}: {error}") from None


def _encoded(text: str, form: str) -> bytes:
    """Return the text in the encoding of its reader, with a newline."""
    if not FORMS[form].utf8:
        with contextlib.suppress(UnicodeEncodeError):
            return os.fsencode(text) + b"\n"
    return text.encode(errors="surrogateescape") + b"\n"
