"""`gputui pick`: the best free devices, in order, on one line."""

from __future__ import annotations

import os

from gputui.allocating.allocate import allocate
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.common import DONE, Call, Parser, add_source_options, opened, own_settings, print_json
from gputui.cli.hosts_options import add_hosts_option
from gputui.cli.request_options import add_request_options, add_wait_option, device_request
from gputui.sources.source import Want


def parser() -> Parser:
    made = Parser(
        "pick",
        "Print the best free devices, in order, on one line. If there are too few: nothing on stdout, the\n"
        "reason on stderr, status 4. Without && in the example, the command would then start on every GPU;\n"
        "`gputui run` has no such risk.",
        common="-n --gpus --min-free --wait --format",
        usage="gputui pick [-n N] [--gpus LIST] [OPTION…]",
        example="E=$(gputui pick -n 2 --format env) && env $E python train.py",
    )
    add_request_options(made, exclusive=False)
    made.add_argument(
        "--ids",
        choices=("index", "uuid"),
        default="index",
        help="name the devices by index (default) or UUID",
    )
    add_wait_option(made)
    made.add_argument(
        "--force",
        action="store_true",
        help="also print devices that somebody else uses or has claimed, if named or if too few are free",
    )
    form = made.add_mutually_exclusive_group()
    form.add_argument(
        "--format", choices=("ids", "env", "json"), default="ids", help="output format (default ids)"
    )
    form.add_argument(
        "--json",
        dest="format",
        action="store_const",
        const="json",
        help="the same as --format json; on a failure the reason is on stdout too, as JSON",
    )
    add_hosts_option(made)
    add_source_options(made)
    return made


def main(args: Call) -> int:
    if args.hosts is not None:
        from gputui.cli.boxes import pick_from_boxes

        return pick_from_boxes(args)
    as_json = args.format == "json"
    asked = device_request(args)
    if asked.auto:
        from gputui.cli.launch_call import model_request
        from gputui.cli.planned_devices import settle_auto
        from gputui.launching.launch_options import LaunchOptions
        from gputui.requesting.launch_request import LaunchRequest

        asked = settle_auto(LaunchRequest(LaunchOptions(), asked, model_request(args))).devices
    facts = Want.LOAD | Want.PROCESSES | Want.NAMES if as_json else Want.VERDICT
    by_index = args.ids == "index" and not as_json
    request = asked.request(
        own_settings().rules,
        purpose="gputui pick",
        facts=facts,
        explain=as_json or args.why,
        by_index=by_index,
    )
    with opened(args, request.cpu_only) as source:
        allocation = allocate(request, source, os.environ, AllocationListener(args.why))
    devices = allocation.devices
    if args.format == "ids":
        print(allocation.visibility.identifiers(devices, args.ids))
    elif args.format == "env":
        from gputui.launching.launch import Launch

        print(Launch((), allocation.changes(os.environ, args.ids)).line)
    else:
        print_json(allocation.document(args.ids))
    return DONE
