"""A file for Docker Compose: the container of the docker form as its only service.

Keys: the Compose Specification (05-services.md, deploy.md). Compose expands `$NAME` in every value; `$$`
stands for `$`.
"""

from __future__ import annotations

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.quoting import quote
from gputui.launching.container_command import read_gpus
from gputui.launching.exports.docker import NAME, container_of
from gputui.launching.exports.form import DEFAULT, ExportError, ExportOptions, yaml_text
from gputui.launching.launch import Launch
from gputui.launching.scheduler_job import job_name

_TEXTS = (
    "name=container_name workdir=working_dir ipc=ipc shm-size=shm_size network=network_mode runtime=runtime"
    " user=user u=user pid=pid hostname=hostname h=hostname restart=restart platform=platform"
    " memory=mem_limit m=mem_limit"
)
_LISTS = (
    "env=environment device=devices volume=volumes v=volumes publish=ports p=ports group-add=group_add"
    " cap-add=cap_add cap-drop=cap_drop security-opt=security_opt add-host=extra_hosts tmpfs=tmpfs"
    " env-file=env_file label=labels l=labels entrypoint=entrypoint"
)
_FLAGS = "interactive=stdin_open tty=tty privileged=privileged read-only=read_only init=init"
"""The keys of the options of `docker run`, by their names."""
_LEFT_OUT = ("rm", "detach", "gpus")
"""Options about the start of the container; and the devices, which have a section of their own."""


def to_compose(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """Return the file; the line that starts it is a comment at the top.

    Raises ExportError, also for an option of the user's own `docker run` that has no key here.
    """
    before, container = container_of(launch, options)
    if before:
        raise ExportError(f"Compose starts the container itself; leave out {' '.join(before)!r}")
    arguments, command = container.arguments, container.arguments.operands[1:]
    of_command = job_name(replace(launch, argv=container.command or (container.image,)))
    name = arguments.get("name") or of_command
    if not NAME.fullmatch(name):
        raise ExportError(f"{name!r} cannot be the name of a service: letters, digits and ._- can")
    service: dict[str, object] = {"image": container.image}
    if command:
        service["command"] = list(command)
    texts, lists, flags = (
        dict(pair.split("=") for pair in table.split()) for table in (_TEXTS, _LISTS, _FLAGS)
    )
    for option in arguments.options:
        if option.name in texts:
            service[texts[option.name]] = option.value
        elif option.name in flags:
            service[flags[option.name]] = True
        elif option.name in lists:
            key = lists[option.name]
            if key in ("volumes", "env_file") and not option.value.startswith("/"):
                raise ExportError(
                    f"Compose would look for {option.value!r} in another folder; give an absolute path"
                )
            every = arguments.named([name for name in lists if lists[name] == key])
            service[key] = list(dict.fromkeys(each.value for each in every if each.value))
        elif option.name not in _LEFT_OUT:
            raise ExportError(f"a Compose service has no key for {option.spelling}; use --as docker")
    if container.gpus is not None:
        if "=" in container.gpus.partition("=")[2]:
            raise ExportError(f"Compose accepts only devices in --gpus, not {container.gpus!r}")
        devices = {
            "driver": "nvidia",
            "device_ids": list(read_gpus(container.gpus).names),
            "capabilities": ["gpu"],
        }
        service["deploy"] = {"resources": {"reservations": {"devices": [devices]}}}
    file = f"-f {quote(options.file)} " if options.file else ""
    text = yaml_text({"services": {name: service}}).replace("$", "$$")
    return f"# docker compose {file}run --rm {name}\n{text}"
