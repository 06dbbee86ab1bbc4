"""`gputui pick`: the best free devices, in order, on one line."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.cli.choice import choose
from gputui.cli.choice_options import add_choice_options, add_wait_option, memory, percent
from gputui.cli.common import DONE, Parser, WrongCallError, add_source_options
from gputui.sources.source import Want
from gputui.vendors.registry import vendor_of, vendors_of


def parser() -> Parser:
    made = Parser(
        "pick",
        "The best free devices, in order, on one line. On a shortage: nothing on stdout, the reason on\n"
        "stderr, status 4.",
        epilog="E=$(gputui pick -n 2 --format env) && env $E python train.py\n"
        "(without &&, a shortage would start the command on every GPU; `gputui run` is safe by itself)",
    )
    add_choice_options(made, exclusive=False)
    made.add_argument("--min-free", type=memory, metavar="SIZE", help="at least so much free memory (20G)")
    made.add_argument("--max-util", type=percent, metavar="PCT", help="at most so much utilization")
    add_wait_option(made)
    made.add_argument("--format", choices=("ids", "env", "json"), default="ids", help="ids is the default")
    add_source_options(made)
    return made


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = parser().parse_args(words)
    if command is not None:
        raise WrongCallError("pick starts nothing; a command is for `gputui run`")
    want = Want.LOAD | Want.PROCESSES | Want.NAMES if args.format == "json" else Want.VERDICT
    chosen = choose(args, want=want, told="gputui pick")
    devices = chosen.devices
    visibility = vendor_of(devices, vendors_of(chosen.snapshot.devices)).visibility
    if args.format == "ids":
        print(visibility.identifiers(devices, args.ids))
    elif args.format == "env":
        from gputui.launching.launch import Launch

        print(Launch((), visibility.changes(devices, args.ids)).line)
    else:
        import json

        facts = ("index", "uuid", "name", "pci_bus_id", "parent", "memory_total", "memory_free")
        print(
            json.dumps(
                {
                    "devices": [{fact: getattr(device, fact) for fact in facts} for device in devices],
                    "environment": dict(visibility.changes(devices, args.ids)),
                    "weakest_link": chosen.alternatives[0].weakest if chosen.alternatives else None,
                    "reason": chosen.alternatives[0].reason if chosen.alternatives else None,
                }
            )
        )
    return DONE
