"""Reads a model from the name that a user gives: a folder, a file, a hub id in the cache, "8B", a number.

Nothing is fetched: a hub id is looked up in the cache of huggingface_hub, whose path follows its variables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from gputui.inventory.formatting import counted, printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.others_files import beginning, one_reading
from gputui.inventory.typed_json import Json
from gputui.planning.closed_forms import closed_form
from gputui.planning.fields import Fields
from gputui.planning.gguf import bytes_of, configuration_of
from gputui.planning.model import Model, PlanningError
from gputui.planning.safetensors import Count, count_file, count_index, read_bytes, read_json, size_of

MOST_PARAMETERS = 10**15

_ABOUT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([KMBT])", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[0-9]{1,2})?)()", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_ADAPTER = "adapter_config.json"
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt")


def read_model(name: str, environ: Mapping[str, str], directory: Path, serves: bool = False) -> Model:
    """The model with this name; `directory` is where relative paths begin.

    With `serves`, the shape and the bytes of the weights are enough.

    Raises PlanningError, or its subclass UnknownArchitectureError where only a closed form is missing.
    """
    place = find_model(name, environ, directory)
    if place is None:
        return of_parameters(parameters_of(name), name)
    known = name if place != directory / name else _last(place, name)
    with one_reading():
        try:
            return _of_folder(place, known) if place.is_dir() else _of_file(place, known)
        except OSError as error:
            # It is another user's, or a name in its index is too long.
            raise PlanningError(f"{known!r} cannot be read: {error.strerror}") from None
        except PlanningError as error:
            if not serves or not place.is_dir():
                raise
            return _by_bytes(place, known, error)


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
    if not _HUB_ID.fullmatch(name) or ".." in name or name.endswith(".gguf"):
        raise PlanningError(f"no file or folder {printable(name[:200])!r}")
    found = cached(name, environ)
    if found is None:
        raise PlanningError(
            f"no file or folder {name!r}, and no such model in the Hugging Face cache: fetch its config.json "
            f"with `hf download {name} config.json`, or give its size (8B) as the model"
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
    # Llama's shapes: width 128 × heads, about as many layers as heads, 12 × layers × width² parameters.
    heads = _usual((parameters / (12 * 128**2)) ** (1 / 3))
    hidden = 128 * heads
    layers = _usual(parameters / (12 * hidden**2))
    values = {
        "vocab_size": 32000,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": hidden * 8 // 3,
    }
    return _like_llama(
        values,
        "the assumed shape",
        Count(parameters, 0),
        name=name or str(parameters),
        architecture="",
        counted="given",
        max_positions=None,
        notices=(
            "only the number of parameters is known: layers and activations are those of a Llama with"
            f" {counted(layers, 'layer')}, {counted(heads, 'head')}, hidden size {hidden}, vocabulary 32000",
        ),
    )


def _usual(number: float) -> int:
    """The nearest number of heads or layers that models have: a small number times a power of two."""
    numbers = [factor << power for factor in (1, 3, 5) for power in range(11)]
    return min(numbers, key=lambda each: max(each / number, number / each))


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
        with os.scandir(folder / "snapshots") as entries:
            # A folder of another user may have any number of them.
            only = [Path(entry) for entry in islice(entries, 2)]
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
        return of_config(config, name)
    except PlanningError:
        # No closed form, or several parts: the stored weights give the number where they exist.
        if stored is None:
            raise
        return _stored(stored, name, _object(config))


def _nothing_in(folder: Path, name: str) -> str:
    """The text that a folder has no model that can be read, and what to give instead."""
    if not (folder / _ADAPTER).is_file():
        return f"{name!r} has neither a config.json nor {_SINGLE}; give its size (8B) as the model"
    values = _object(folder / _ADAPTER)
    base, rank = values.get("base_model_name_or_path"), values.get("r")
    given = printable(base[:200]) if isinstance(base, str) and base else "the model that it adapts"
    lora = f" with --lora {rank}" if type(rank) is int and rank > 0 else ""
    return f"{name!r} is an adapter; give {given}{lora}"


def _by_bytes(folder: Path, name: str, why: PlanningError) -> Model:
    """A model that no form counts, for serving: by the bytes of its weights, else by its text part alone.
    Raises `why` where neither is known."""
    config = _object(folder / "config.json")
    stored, text = stored_bytes(folder), config.get("text_config")
    if stored:
        bits = bits_of(config)
        count = Count(int(stored * 8 / (bits or 16)), 0)
        return replace(shaped(count, name, config), bits=bits, stored=stored)
    if not isinstance(text, dict):
        raise why
    model = closed_form(Fields(text, "config.json"), name)
    return replace(model, notices=(*model.notices, "parts other than text are not counted"))


def stored_bytes(folder: Path) -> int:
    """The bytes of the weights by a folder's index, else of its one file; 0 where there is neither."""
    for name in filter(lambda each: (folder / each).is_file(), (_INDEX, _SINGLE)):
        total = re.search(rb'"total_size": *([0-9]{1,17})', read_bytes(folder / name, 0, 4096))
        return int(total[1]) if total else size_of(folder / name)
    return 0


def bits_of(config: Mapping[str, Any]) -> float:
    """The bits of a quantized weight with its scales; 0 where the weights are not quantized."""
    found = config.get("quantization_config")
    if not isinstance(found, dict):
        return 0
    # The key is at different depths for GPTQ, AWQ, compressed-tensors and bitsandbytes.
    said = str(found)
    bits = re.search(r"'(?:num_)?bits': ([1-8])\b", said)
    width = int(bits[1]) if bits else 4 if re.search("'load_in_4bit': True|fp4", said) else 8
    group = re.search(r"'group_size': ([1-9][0-9]{0,5})\b", said)
    # A group has a scale of 16 bits, and a zero point.
    return width + (16 + width) / int(group[1]) if group else width


def _of_gguf(path: Path, name: str) -> Model:
    config, stored = configuration_of(path), bytes_of(path)
    try:
        model = closed_form(Fields(config, printable(path.name)), name)
    except PlanningError:
        model = shaped(Count(max(1, stored // 2), 0), name, config, printable(path.name))
    return replace(model, counted="GGUF", stored=stored, bits=8 * stored / model.parameters)


def _of_file(path: Path, name: str) -> Model:
    if path.suffix == ".gguf":
        return _of_gguf(path, name)
    if path.suffix in _OTHER_WEIGHTS:
        raise PlanningError(
            f"{printable(path.name)} is not read; give the folder of the model with its config.json, or "
            "its size (8B) as the model"
        )
    if path.name.endswith((".safetensors", ".index.json")):
        config = path.parent / "config.json"
        return _stored(path, name, _object(config) if config.is_file() else None)
    return of_config(path, name)


def configuration(place: Path) -> Json:
    """The configuration in a folder, or in a config.json. Raises PlanningError."""
    return _object(place / "config.json" if place.is_dir() else place)


def _object(path: Path) -> Json:
    found = read_json(path)
    if not isinstance(found, dict):
        raise PlanningError(f"{printable(path.name)} is not the configuration of a model")
    return found


def of_config(path: Path, name: str) -> Model:
    """The model of a config.json by its closed form. Raises PlanningError."""
    values = _object(path)
    if "weight_map" in values:
        return _stored(path, name, None)
    if not ("model_type" in values or "architectures" in values):
        raise PlanningError(
            f"{printable(path.name)} is not the configuration of a model: it has no model_type"
        )
    given = values.get("_name_or_path")
    known = name if name != "config.json" else given if isinstance(given, str) and given else name
    model = closed_form(Fields(values, printable(path.name)), printable(known[:200]))
    return _quantized(model, values, path.parent)


def _quantized(model: Model, config: Json, folder: Path) -> Model:
    """The model with the bits and the bytes of its weights, where they are quantized."""
    bits = bits_of(config)
    return replace(model, bits=bits, stored=stored_bytes(folder) if bits else 0)


def _stored(path: Path, name: str, config: Json | None) -> Model:
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
    model = replace(model, parameters=count.parameters, counted="safetensors", notices=notices)
    return _quantized(model, config, path.parent)


def shaped(count: Count, name: str, config: Json, source: str = "config.json") -> Model:
    """A model whose parameters are counted elsewhere, in the shape of its configuration in the file `source`.

    The shape is read by the field names that nearly all models use. Where one is missing, the shape is that
    of a Llama of the same size. Raises PlanningError.
    """
    text = config.get("text_config")
    values = {**config, **text, "text_config": None} if isinstance(text, dict) else config
    fields = Fields(values, source)
    architecture = printable(fields.architecture or fields.text("model_type"))
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    if not all(fields.has(each) for each in names):
        return _unshaped(count, name, f"the shape of {architecture or 'the model'}")
    return _like_llama(
        values,
        source,
        count,
        name=name,
        architecture=architecture,
        counted="safetensors",
        max_positions=fields.whole("max_position_embeddings", default=0, least=0) or None,
        notices=(f"the activations of {architecture} are estimated like Llama's",),
    )


def _unshaped(count: Count, name: str, what: str) -> Model:
    guessed = of_parameters(count.parameters, name)
    notice = guessed.notices[0].replace("only the number of parameters is known", f"{what} is not known")
    largest = count.largest or guessed.largest_layer
    return replace(guessed, largest_layer=largest, counted="safetensors", notices=(notice,))


def _like_llama(values: Json, source: str, count: Count, **facts: Any) -> Model:
    """A model of known size with blocks of equal size, which keep the activations of Llama's blocks."""
    model = closed_form(Fields({**values, "architectures": ["LlamaForCausalLM"]}, source), "")
    parameters = count.parameters
    blocks = parameters - min(2 * model.vocabulary * model.hidden, parameters // 2)
    return replace(
        model,
        parameters=parameters,
        largest_layer=count.largest or min(parameters, model.largest_layer),
        largest_block=max(1, blocks // model.layers),
        wrap_class=None,
        **facts,
    )
