"""Start a planned training: write its files into a folder, and make launch options whose command names
them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.others_files import beginning
from gputui.launching.argument_vector import write_options
from gputui.launching.compose import launcher_of, started_by_another
from gputui.launching.container_command import read_container
from gputui.launching.exports.accelerate import section_of
from gputui.launching.host_environment import HostEnvironment, ThisHost
from gputui.launching.launch_options import AUTO, LaunchOptions
from gputui.launching.launchers import LAUNCHERS, recognised
from gputui.launching.launchers.accelerate import Accelerate
from gputui.launching.launchers.base import Launcher
from gputui.launching.launchers.torchrun import Torchrun
from gputui.launching.wrappers import unwrap
from gputui.planning.files import FSDP_NAME, JSON_NAME, YAML_NAME, Recipe, RecipeError, files_of, fsdp_json
from gputui.system.files import NotPrivateError, write_result
from gputui.system.trust import who_can_change


class FilesDifferError(Exception):
    """Files of the same names with other contents exist."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(f"{', '.join(map(str, paths))}: already there with other contents")


@frozen
class Prepared:
    """A recipe for one command.

    options  for `compose`, on `recipe.devices` devices; an empty command stays empty
    texts    the files to write, by path; compose reads accelerate's file, so call `write` before it
    notes    sentences about facts that the files cannot state, and about changed options of the command
    """

    recipe: Recipe
    options: LaunchOptions
    texts: Mapping[Path, str]
    notes: tuple[str, ...] = ()


def prepared(
    recipe: Recipe,
    options: LaunchOptions,
    folder: str,
    host_environment: HostEnvironment | None = None,
) -> Prepared:
    """Prepare the command of `options` to start as the recipe says, with files in `folder`.

    The command is rewritten for the recipe's launcher; accelerate's options that the file sets are removed.
    Raises RecipeError where the recipe cannot be started with the command or with the requested launcher, or
    where no launcher starts it.
    """
    prefix, command = unwrap(options.command)
    source = launcher_of(options)
    planned = files_of(recipe, source.name)
    launcher = LAUNCHERS[planned.launcher]
    if options.launcher not in (AUTO, launcher.name):
        raise RecipeError(f"{recipe.name} is started by {launcher.name}, not by {options.launcher}")
    if read_container(command) is not None:
        raise RecipeError("the command starts a container, which does not have these files")
    if options.directory is not None:
        # The command starts in another directory, but the folder's path is relative to ours.
        folder = os.path.abspath(folder)  # noqa: PTH100 - as text
    paths = {name: os.path.join(folder, name) for name in planned.texts}  # noqa: PTH118
    texts = {Path(paths[name]): text for name, text in planned.texts.items()}
    notes = list(planned.notes)
    words = tuple(command)
    if command:
        words = _started(launcher, command, options.directory, host_environment or ThisHost(), notes)
        if YAML_NAME in paths:
            words = _with_config(words, paths[YAML_NAME], notes)
        if recipe.fsdp and recipe.checkpointing:
            words = _without_checkpointing(words, notes)
        own = os.path.join(folder, FSDP_NAME) if recipe.fsdp else None  # noqa: PTH118
        words, found = _with_file(recipe, words, _FSDP_OPTIONS, own)
        if found and own is not None:
            texts[Path(own)] = fsdp_json(recipe)
        words, found = _with_file(recipe, words, _JSON_OPTIONS, paths.get(JSON_NAME))
        if launcher.name == "deepspeed" and JSON_NAME in paths and not found:
            notes.append(f"the script needs its file: --deepspeed {paths[JSON_NAME]} (transformers' Trainer)")
        words = (*prefix, *words)
    options = replace(options, command=words, launcher=AUTO if words else launcher.name, processes=None)
    return Prepared(recipe, options, texts, tuple(notes))


def _started(
    launcher: Launcher,
    command: Sequence[str],
    directory: str | None,
    host_environment: HostEnvironment,
    notes: list[str],
) -> tuple[str, ...]:
    """The command rewritten for the launcher, without torchrun's own number of processes."""
    if recognised(command) is not launcher:
        words, warnings, remarks = started_by_another(launcher, command, host_environment, directory)
        notes += [*warnings, *remarks]
        return words
    if isinstance(launcher, Torchrun):
        starter, rest = launcher.split(command)
        return (*starter, *launcher.given(rest).without(("nproc-per-node",)).words)
    return tuple(command)


def _with_config(command: tuple[str, ...], path: str, notes: list[str]) -> tuple[str, ...]:
    """An accelerate command that reads the configuration file, without options that would override it."""
    accelerate = LAUNCHERS["accelerate"]
    assert isinstance(accelerate, Accelerate)
    starter, rest = accelerate.split(command)
    given = accelerate.given(rest)
    decided = [option for option in given.options if _decided(option.name)]
    if decided:
        words = " ".join(write_options(decided))
        notes.append(f"left out, because the file decides it: {words}")
    kept = given.without({option.name for option in decided})
    # A path with a leading dash would be parsed as an option.
    return (*starter, "--config_file", f"./{path}" if path.startswith("-") else path, *kept.words)


def _without_checkpointing(command: Sequence[str], notes: list[str]) -> tuple[str, ...]:
    """The command without the Trainer's switch: with both it and accelerate's, the Trainer does not start."""

    def switches(word: str) -> bool:
        return word.replace("_", "-").partition("=")[0] == "--gradient-checkpointing"

    pairs = zip(command, ("", *command), strict=False)
    ours = [
        switches(word) or (switches(before) and "=" not in before and word.lower() in _SWITCHED)
        for word, before in pairs
    ]
    left = [word for word, own in zip(command, ours, strict=True) if own]
    if left:
        notes.append(f"left out, because the file decides it: {' '.join(left)}")
    return tuple(word for word, own in zip(command, ours, strict=True) if not own)


_SWITCHED = ("true", "false", "yes", "no", "y", "n", "t", "f", "1", "0", "on", "off")
"""Values that transformers accepts after the name of a switch."""

_DECIDED = frozenset(
    (
        *("config-file", "num-processes", "num-machines", "gpu-ids", "mixed-precision", "cpu", "multi-gpu"),
        *("use-fsdp", "use-deepspeed", "use-megatron-lm", "use-parallelism-config"),
    )
)
_DECIDED_PARTS = ("fsdp_config", "deepspeed_config", "parallelism_config", "megatron_lm_config")


def _decided(name: str) -> bool:
    """Whether the file sets the value of that accelerate option."""
    return name in _DECIDED or section_of(name) in _DECIDED_PARTS


_JSON_OPTIONS = ("--deepspeed", "--deepspeed_config")
"""The options that give a script DeepSpeed's file: the first is that of transformers' Trainer, the second
that of `deepspeed.add_config_arguments`, where --deepspeed is a flag."""


_FSDP_OPTIONS = ("--fsdp_config",)


def _with_file(
    recipe: Recipe, command: tuple[str, ...], options: tuple[str, ...], path: str | None
) -> tuple[tuple[str, ...], bool]:
    """The command with our file in place of its own of these options, which a script prefers to accelerate's;
    and whether it has one.

    Raises RecipeError for a command that asks for DeepSpeed, or FSDP, where the recipe has none.
    """
    words, found = list(command), False
    for place, word in enumerate(words):
        name, equals, _ = word.partition("=")
        following = words[place + 1] if place + 1 < len(words) else "-"
        if name not in options or (not equals and following.startswith("-")):
            continue
        if path is None:
            what = "FSDP" if options is _FSDP_OPTIONS else "DeepSpeed"
            raise RecipeError(f"{word} in the command asks for {what}, which {recipe.name} does not use")
        found = True
        if equals:
            words[place] = f"{name}={path}"
        else:
            words[place + 1] = path
    return tuple(words), found


def differing(prepared: Prepared) -> tuple[Path, ...]:
    """The paths of its files where other contents exist."""
    return tuple(path for path, text in prepared.texts.items() if _differs(path, text.encode()))


def write(prepared: Prepared, over: Collection[Path] = ()) -> tuple[Path, ...]:
    """Write the files, and make their folder where it is missing. Returns their paths.

    over  the paths where other contents may be lost

    Raises, before anything is written, FilesDifferError where those of another path would be lost, and
    NotPrivateError where other users could change what the command will read; OSError.
    """
    for path in prepared.texts:
        # A group that shares a project can also change the program that the command starts.
        if reason := who_can_change(str(path), groups=False):
            raise NotPrivateError(reason)
    lost = [path for path in differing(prepared) if path not in over]
    if lost:
        raise FilesDifferError(lost)
    for path, text in prepared.texts.items():
        write_result(path, text.encode(), folders=True)
    return tuple(prepared.texts)


def _differs(path: Path, data: bytes) -> bool:
    """Whether the path exists with other contents, or cannot be read at once (a lease of its owner)."""
    try:
        return beginning(path, len(data)) != (data, True)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
