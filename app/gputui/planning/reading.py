"""Reads a model from the name that a user gives: a folder, a file, a hub id in the cache, "8B", a number.

Nothing is fetched: a hub id is looked up in the cache of huggingface_hub, whose path follows its variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.others_files import beginning, one_reading
from gputui.planning.closed_forms import Shape, closed_form, kept_by
from gputui.planning.fields import MOST_LAYERS, Fields
from gputui.planning.model import Model, PlanningError
from gputui.planning.safetensors import Count, count_file, count_index, read_json

MOST_PARAMETERS = 10**15

_ABOUT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([KMBT])", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[0-9]{1,2})?)()", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_ADAPTER = "adapter_config.json"
_OTHER_WEIGHTS = (".gguf", ".bin", ".pt", ".pth", ".ckpt")


def read_model(name: str, environ: Mapping[str, str], directory: Path) -> Model:
    """The model with this name; `directory` is where relative paths begin.

    Raises PlanningError, or its subclass UnknownArchitectureError where only a closed form is missing.
    """
    place = find_model(name, environ, directory)
    if place is None:
        return of_parameters(parameters_of(name), name)
    known = name if place != directory / name else _last(place, name)
    with one_reading():
        return _of_folder(place, known) if place.is_dir() else _of_file(place, known)


def find_model(name: str, environ: Mapping[str, str], directory: Path) -> Path | None:
    """The folder or file with this name, or its snapshot in the cache; None for a number ("8B").

    Raises PlanningError where nothing has this name.
    """
    if not name or "\0" in name or len(name) > 4096:
        raise PlanningError("the model's name is empty, or no name at all")
    path = directory / name
    try:
        if path.exists():
            return path
    except OSError as error:
        raise PlanningError(f"{printable(name[:200])!r} cannot be read: {error.strerror}") from None
    if _ABOUT.fullmatch(name):
        return None
    if not _HUB_ID.fullmatch(name) or ".." in name:
        raise PlanningError(f"no file or folder {printable(name[:200])!r}")
    found = cached(name, environ)
    if found is None:
        raise PlanningError(
            f"no file or folder {name!r}, and no such model in the Hugging Face cache: fetch its config.json "
            f"with `hf download {name} config.json`, or give a number like 8B, or --parameters N"
        )
    return found


def parameters_of(text: str) -> int:
    """The number in "8B", "7000000000" or "6.7e9", for --parameters. Raises PlanningError."""
    about = _ABOUT.fullmatch(text) or _NUMBER.fullmatch(text)
    if about is None:
        raise PlanningError(f"{printable(text[:40])!r} is not a number of parameters (8B, 7000000000)")
    number, unit = about.groups()
    whole = int(number) if number.isdigit() and not unit else round(float(number) * _UNITS[unit.upper()])
    if not 1 <= whole <= MOST_PARAMETERS:
        raise PlanningError(f"{printable(text[:40])!r} is not a number of parameters (1 to 10^15)")
    return whole


def of_parameters(parameters: int, name: str | None = None) -> Model:
    """A model with only a number of parameters: its shape is assumed to be like Llama's.

    Raises PlanningError for an impossible number.
    """
    if not 1 <= parameters <= MOST_PARAMETERS:
        raise PlanningError(f"{parameters} is not a number of parameters (1 to 10^15)")
    # Llama's shapes: width 128 × depth, 12 · depth · width² parameters.
    layers = max(1, min(MOST_LAYERS, round((parameters / (12 * 128**2)) ** (1 / 3))))
    hidden = max(64, 128 * layers)
    heads = max(1, hidden // 128)
    return _like_llama(
        Shape(32000, hidden, layers, heads, heads, min(hidden, 128), hidden * 8 // 3, None),
        Count(parameters, 0),
        name=name or str(parameters),
        counted="given",
        notices=(
            "only the number of parameters is known: layers and activations are those of a model like Llama"
            f" with {layers} {'layer' if layers == 1 else 'layers'}, hidden size {hidden}, vocabulary 32000",
        ),
    )


def cached(name: str, environ: Mapping[str, str]) -> Path | None:
    """The snapshot of a hub id in the cache of huggingface_hub, None where it is missing."""
    home = Path(environ.get("HOME") or "/")
    base = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
    if not base:
        general = Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "huggingface"
        base = str(Path(environ.get("HF_HOME") or general) / "hub")
    # huggingface_hub expands both, in a value that no shell has expanded.
    place = str(home) + base[1:] if base.startswith("~/") else base
    place = _VARIABLE.sub(lambda match: environ.get(match[1] or match[2], match[0]), place)
    folder = Path(place) / ("models--" + name.replace("/", "--"))
    try:
        revision = beginning(folder / "refs" / "main", 64)[0].decode("ascii").strip()
    except (OSError, ValueError):
        revision = ""
    try:
        if re.fullmatch(r"[0-9a-f]{4,64}", revision) and (folder / "snapshots" / revision).is_dir():
            return folder / "snapshots" / revision
        only = list((folder / "snapshots").iterdir())
    except OSError:
        return None
    return only[0] if len(only) == 1 and only[0].is_dir() else None


def _last(path: Path, name: str) -> str:
    """The name of a path in a plan."""
    last = path.resolve().name if path.is_dir() else path.name
    return printable(last or name)


def _of_folder(folder: Path, name: str) -> Model:
    config = folder / "config.json"
    stored = next((folder / each for each in (_INDEX, _SINGLE) if (folder / each).is_file()), None)
    if not config.is_file():
        if stored is None:
            raise PlanningError(_nothing_in(folder, name))
        return _stored(stored, name, None)
    try:
        return _of_config(config, name)
    except PlanningError:
        # No closed form, or several parts: the stored weights give the number where they exist.
        if stored is None:
            raise
        return _stored(stored, name, _object(config))


def _nothing_in(folder: Path, name: str) -> str:
    """The text that a folder has no model that can be read, and what to give instead."""
    if not (folder / _ADAPTER).is_file():
        return f"{name!r} has neither a config.json nor {_SINGLE}: give --parameters N"
    values = _object(folder / _ADAPTER)
    base, rank = values.get("base_model_name_or_path"), values.get("r")
    given = printable(base[:200]) if isinstance(base, str) and base else "the model that it adapts"
    lora = f" with --lora {rank}" if type(rank) is int and rank > 0 else ""
    return f"{name!r} is an adapter: give {given}{lora}"


def _of_file(path: Path, name: str) -> Model:
    if path.suffix in _OTHER_WEIGHTS:
        raise PlanningError(
            f"{printable(path.name)} is not read: give the folder of the model with its config.json, or "
            "--parameters N"
        )
    if path.name.endswith((".safetensors", ".index.json")):
        config = path.parent / "config.json"
        return _stored(path, name, _object(config) if config.is_file() else None)
    return _of_config(path, name)


def configuration(place: Path) -> dict[str, Any]:
    """The configuration in a folder, or in a config.json. Raises PlanningError."""
    return _object(place / "config.json" if place.is_dir() else place)


def _object(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict):
        raise PlanningError(f"{printable(path.name)} is not the configuration of a model")
    return found


def _of_config(path: Path, name: str) -> Model:
    values = _object(path)
    if "weight_map" in values:
        return _stored(path, name, None)
    if not ("model_type" in values or "architectures" in values):
        raise PlanningError(
            f"{printable(path.name)} is not the configuration of a model: it has no model_type"
        )
    given = values.get("_name_or_path")
    known = name if name != "config.json" else given if isinstance(given, str) and given else name
    return closed_form(Fields(values, printable(path.name)), printable(known[:200]))


def _stored(path: Path, name: str, config: dict[str, Any] | None) -> Model:
    """The exact number of stored parameters, with the shape of the configuration next to them."""
    count = count_index(path) if path.name.endswith(".json") else count_file(path)
    if config is None:
        return _unshaped(count, name, "its shape")
    try:
        model = closed_form(Fields(config, "config.json"), name)
    except PlanningError:
        return shaped(count, name, config)
    notices = model.notices
    if model.parameters != count.parameters:
        notices += (
            f"its files hold {count.parameters} parameters, {model.architecture} has {model.parameters}",
        )
    return replace(model, parameters=count.parameters, counted="safetensors", notices=notices)


def shaped(count: Count, name: str, config: dict[str, Any]) -> Model:
    """A model whose parameters are counted elsewhere, in the shape of its configuration.

    The shape is read by the field names that nearly all models use. Where one is missing, the shape is that
    of a Llama of the same size. Raises PlanningError.
    """
    text = config.get("text_config")
    fields = Fields({**config, **text} if isinstance(text, dict) else config, "config.json")
    architecture = fields.architecture or fields.text("model_type")
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    if not all(fields.has(each) for each in names):
        return _unshaped(count, name, f"the shape of {printable(architecture) or 'the model'}")
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    shape = Shape(
        vocab=fields.whole("vocab_size"),
        hidden=hidden,
        layers=fields.layers("num_hidden_layers", default=1),
        heads=heads,
        kv=fields.whole("num_key_value_heads", default=heads),
        head_dim=fields.whole("head_dim", default=max(1, hidden // heads)),
        ffn=fields.whole("intermediate_size"),
        positions=None,
    )
    return _like_llama(
        shape,
        count,
        name=name,
        architecture=printable(architecture),
        counted="safetensors",
        tied=fields.yes("tie_word_embeddings", False),
        notices=(f"the activations of {printable(architecture)} are estimated like Llama's",),
    )


def _unshaped(count: Count, name: str, what: str) -> Model:
    guessed = of_parameters(count.parameters, name)
    notice = guessed.notices[0].replace("only the number of parameters is known", f"{what} is not known")
    largest = count.largest or guessed.largest_layer
    return replace(guessed, largest_layer=largest, counted="safetensors", notices=(notice,))


def _like_llama(
    shape: Shape,
    count: Count,
    *,
    name: str,
    counted: str,
    notices: tuple[str, ...],
    architecture: str = "",
    tied: bool = False,
) -> Model:
    """A model of known size with blocks of equal size, which keep the activations of Llama's blocks."""
    hidden, parameters, embedding = shape.hidden, count.parameters, shape.vocab * shape.hidden
    blocks = parameters - min(2 * embedding, parameters // 2)
    kept = kept_by("llama", shape)
    return Model(
        name=name,
        architecture=architecture,
        parameters=parameters,
        largest_layer=count.largest or min(parameters, max(embedding, hidden * shape.ffn)),
        largest_block=max(1, blocks // shape.layers),
        blocks=shape.layers,
        hidden=hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv,
        vocabulary=shape.vocab,
        tied=tied,
        wrap_class=None,
        adapted=shape.layers
        * (4 * hidden + 2 * (shape.attention + shape.key_values) + 3 * (hidden + shape.ffn)),
        saved=tuple(one.times(shape.layers) for one in kept),
        saved_block=kept,
        counted=counted,
        notices=notices,
    )
