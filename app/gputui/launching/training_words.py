"""Read the training parameters that a command sets: model, batch, sequence, precision and others.

Of a Python script, only the arguments of TrainingArguments and DistributedDataParallel, and the type of the
weights are read.

Names of options and keys: TrainingArguments and the example scripts of transformers 5.23, TRL, axolotl,
LLaMA-Factory, swift, torchtune and `accelerate launch`. No value is guessed: an unset parameter is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from gputui.choosing.grouping import ALL_REDUCE
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.others_files import NotReadError, go_on, not_read, one_reading
from gputui.launching.argument_vector import likely_options, program_name, whole_number
from gputui.launching.container_command import read_container
from gputui.launching.host_environment import HostEnvironment, ThisHost, below
from gputui.launching.intent import CommandContext
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers import recognised
from gputui.launching.launchers.accelerate_config import configuration
from gputui.launching.programs import program_of
from gputui.launching.programs.program import mapping_in, read_mapping
from gputui.launching.programs.serving import SERVING
from gputui.launching.programs.training import TRAINING
from gputui.launching.python_command import is_python
from gputui.launching.script_intent import context_of
from gputui.launching.shell_script import read_shell
from gputui.launching.shells import shell_of
from gputui.launching.started_script import started_script
from gputui.launching.wrappers import unwrap
from gputui.system.environment import Environ
from gputui.vendors.registry import vendors

if TYPE_CHECKING:
    from gputui.launching.programs.program import Program
    from gputui.planning.serving import Serving
    from gputui.planning.workload import Precision

T = TypeVar("T")


@frozen
class Training:
    """The training parameters of a command. None: not set.

    model        the model as the command names it: a path relative to its directory, or a hub id
    batch        sequences per device in one forward pass
    sequence     the most tokens of a sequence
    precision, optimizer
                 by the planner's names
    lora         the rank; 0 where the command trains all parameters
    accumulation forward passes before a step
    other_optimizer
                 an optimizer that the planner does not know, as the command names it
    quantized    whether the weights are loaded in 4 or 8 bits, which the planner does not model
    splits       whether accelerate divides a batch over the processes (split_batches of accelerator_config)
    offloads     whether DeepSpeed is used, which may use the host's memory
    serves       whether it is an inference server
    serving      the server that it starts, where a plan knows how that uses memory
    trains       whether any sign shows that it trains
    trainer      whether it uses transformers' Trainer, whose defaults apply to unset parameters
    bucket_view  whether gradients are views of DDP's buckets, which need no memory then
    unread       the reason for each file, and each value, that is not read
    """

    model: str | None = None
    batch: int | None = None
    sequence: int | None = None
    precision: Precision | None = None
    checkpointing: bool | None = None
    lora: int | None = None
    optimizer: str | None = None
    accumulation: int | None = None
    other_optimizer: str | None = None
    quantized: bool = False
    splits: bool = False
    offloads: bool = False
    serves: bool = False
    serving: Serving | None = None
    trains: bool = False
    trainer: bool = False
    bucket_view: bool | None = None
    unread: tuple[str, ...] = ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """The limits of a plan of this training, as sentences."""
        texts = [*self.unread]
        if self.quantized and self.serving is None:
            texts.append("the command loads weights in 4 or 8 bits, which is not modelled: it needs less")
        if self.other_optimizer is not None:
            name = printable(self.other_optimizer[:40])
            texts.append(
                f"the command's optimizer ({name}) is not modelled: AdamW is counted, or the one of --optim"
            )
        if self.serves and self.serving is None:
            texts.append("the command serves a model: this is what training it would need")
        return tuple(texts)


NO_TRAINING = Training()

_MODEL = (
    *("model-name-or-path", "pretrained-model-name-or-path", "model-id", "model-path", "base-model"),
    *("actor-rollout-ref.model.path", "model-name", "model"),
)
_SERVED = ("m",)
"""More names of the model, for a server."""
_CONTEXT = ("max-model-len", "context-length", "ctx-size", "c")
_TOTAL = "max-total-tokens"
"""The context of Text Generation Inference; for SGLang, the tokens of all requests."""
_SHARE = ("gpu-memory-utilization", "mem-fraction-static", "cuda-memory-fraction")
_CACHE_TYPE = ("kv-cache-dtype", "cache-type-k", "ctk")
_LORA_RANK, _LORAS = ("max-lora-rank",), ("max-loras", "max-loras-per-batch")
_REQUESTS = ("max-num-seqs", "max-running-requests", "max-concurrent-requests")
_BATCHED = ("max-num-batched-tokens", "max-batch-prefill-tokens", "ubatch-size", "ub")
_ON_DEVICES = ("n-gpu-layers", "gpu-layers", "ngl")
_UNCOUNTED = re.compile(
    "speculative-(?:config|model|algorithm)|model-draft|md|mmproj|data-parallel-size|dp-size|dp|lora-paths|lora"
    "|lora-adapters|cpu-offload-gb|n-cpu-moe|ncmoe|kv-cache-memory(?:-bytes)?|num-gpu-blocks-override"
)
"""Options of a server that change its memory, and that no plan counts."""
_BATCH = (
    *("per-device-train-batch-size", "per-gpu-train-batch-size", "micro-batch-size", "train-batch-size"),
    "train-micro-batch-size-per-gpu",
    "batch-size",
)
_SEQUENCE = (
    *("max-seq-length", "max-length", "model-max-length", "block-size", "cutoff-len", "sequence-len"),
    *("max-seq-len", "sequence-length", "seq-length", "seq-len"),
)
_ACCUMULATION = ("gradient-accumulation-steps",)
_BUCKET, _BUCKET_VIEW = ("ddp-bucket-cap-mb", "bucket-cap-mb"), "gradient-as-bucket-view"
_OPTIMIZER = ("optim", "optimizer")
_TYPE = ("torch-dtype", "dtype", "model-dtype")
_ELEMENTS = {"half": 2, "float16": 2, "bfloat16": 2, "float": 4, "float32": 4}
"""The bytes of a weight, by the types of vLLM and SGLang."""
_MIXED = ("mixed-precision",)
_RANK = ("lora-r", "lora-rank")
_ADAPTER = ("adapter", "finetuning-type", "train-type", "tuner-type", "sft-type")
_CHECKPOINTING = (
    *("gradient-checkpointing", "use-gradient-checkpointing", "enable-activation-checkpointing"),
    *("activation-checkpointing", "fsdp-activation-checkpointing"),
)
_QUANTIZED = ("load-in-4bit", "load-in-8bit", "quantization-bit", "quant-bits", "quantization", "quantize")
_TRAINS = (
    *("learning-rate", "lr", "num-train-epochs", "epochs", "max-steps", "max-train-steps", "do-train"),
    *("warmup-steps", "warmup-ratio", "weight-decay", "gradient-checkpointing", "use-peft"),
)

_TRAINER = (
    *("model-name-or-path", "output-dir", "per-device-train-batch-size", "per-device-eval-batch-size"),
    *("do-train", "num-train-epochs"),
)
_TRAINERS = ("TRL", "LLaMA-Factory")
"""Options of TrainingArguments and of transformers' examples, and programs that pass them on."""

_OPTIMIZERS: Mapping[str, str] = {
    "adamw": "adamw",
    "adam": "adamw",
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_hf": "adamw",
    "adamw_apex_fused": "adamw",
    "adamw_8bit": "adamw8bit",
    "adamw_bnb_8bit": "adamw8bit",
    "paged_adamw_8bit": "adamw8bit",
    "sgd": "sgd",
    "lion_32bit": "lion",
}
"""The optimizers that the planner knows, by their names in transformers' `OptimizerNames`."""

_SERVING_VERBS = frozenset(
    (
        *("deploy", "rollout", "app", "eval", "sample", "infer"),
        *("api", "chat", "webchat", "webui", "export", "inference", "evaluate"),
    )
)
"""Subcommands of axolotl, LLaMA-Factory and swift that train nothing."""

_DEFAULT_RANKS: Mapping[str, int] = {"use-peft": 16, "adapter": 8, "finetuning-type": 8}
"""Sources: TRL's ModelConfig; axolotl; LLaMA-Factory, whose lora_rank is 8."""

_PARTS = ("deepspeed", "deepspeed-config", "fsdp-config", "accelerator-config")
"""Options whose file says a part of the training: DeepSpeed's, and those of transformers' Trainer."""

_FILE = re.compile(r"[^-].*\.(?:ya?ml|json)")
_OPEN = ("auto", "none", "null")
"""Values that leave the number to the program."""
_OPEN_NUMBERS: Mapping[str, tuple[str, ...]] = {"-1": (*_CONTEXT, *_SEQUENCE), "0": ("ctx-size", "c")}
"""Numbers that do so, and the options for which they do."""
_TRUE, _FALSE = ("true", "yes", "1", "on", "auto"), ("false", "no", "0", "off", "none")
_THOUSANDS = {"k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20}
"""The units of vLLM's numbers of tokens (vllm/engine/arg_utils.py: human_readable_int)."""
_MOST = 1 << 24
_MOST_COMMANDS = 64


def training_of(
    options: LaunchOptions,
    environ: Environ,
    host_environment: HostEnvironment | None = None,
) -> Training:
    """Return the training parameters of the command of launch options. Reads its script and the configuration
    files that it names, and no other files.

    For a shell script, they are those of the first command that trains and names a model, or else of the
    first one that names a model. For a container nothing is known: its paths are not ours.
    """
    variables = {**environ, **dict(options.additions)}
    context = CommandContext(variables, host_environment or ThisHost(), vendors(), options.directory)
    with one_reading() as unread:
        try:
            found = _of_command(options.command, context)
        except NotReadError as error:
            found = NO_TRAINING
            not_read("the command", error)
    return replace(found, unread=(*unread, *found.unread)) if unread else found


_DEEPEST = 3
"""The limit for following shell scripts that start each other."""


def _of_command(command: Sequence[str], context: CommandContext) -> Training:
    command = unwrap(command)[1]
    if not command or read_container(command) is not None:
        return NO_TRAINING
    if shell_of(command) is not None or command[0].endswith(".sh"):
        return _of_script(command, context)
    said = _Said(command, context)
    program = program_of(command)
    verbs = _SERVING_VERBS.intersection(command[1:4])
    known = program in TRAINING and not program.any_python
    serves = program in SERVING or (known and bool(verbs))
    batch, lora = said.number(_BATCH), said.lora()
    optimizer = said.text(_OPTIMIZER)
    known_optimizer = _OPTIMIZERS.get((optimizer or "").lower())
    said.number(_BUCKET)
    return Training(
        model=said.model(serves),
        batch=batch,
        sequence=said.number(_SEQUENCE),
        precision=said.precision(program is not None and program.name == "swift"),
        checkpointing=said.checkpointing(),
        lora=lora,
        optimizer=known_optimizer,
        # The size of a bucket (`_BUCKET`) changes no sum.
        bucket_view=said.flag(_BUCKET_VIEW),
        splits=said.flag("split-batches") is True,
        accumulation=said.number(_ACCUMULATION),
        other_optimizer=optimizer if optimizer and known_optimizer is None else None,
        quantized=said.quantized(),
        offloads=said.offloads(),
        serves=serves,
        serving=said.serving(program, context) if program in SERVING else None,
        trains=not serves and (batch is not None or bool(lora) or known or said.trains()),
        trainer=not serves
        and (program.name in _TRAINERS if known and program is not None else said.uses_trainer()),
        unread=tuple(dict.fromkeys(said.odd)),
    )


def _of_script(command: Sequence[str], context: CommandContext) -> Training:
    """Return the parameters of a script's first command that trains and names a model, or that names one."""
    script = started_script(command, context.host_environment, context.directory)
    if script is None or script.kind != "shell" or context.depth >= _DEEPEST:
        return NO_TRAINING
    commands, _ = read_shell(script.text, script.arguments, context.environ)
    inside = replace(context, depth=context.depth + 1)
    found = [
        _of_command(each.words, context_of(each, inside))
        for each in commands[:_MOST_COMMANDS]
        if each.certain
    ]
    named = [each for each in found if each.model is not None]
    return next((each for each in named if each.trains), None) or next(iter(named), NO_TRAINING)


_ARGUMENTS = re.compile(
    r"(?:TrainingArguments|from_pretrained|DDP\w*|DistributedDataParallel\w*)\((?:[^()'\"]|'[^'\n]*'|\"[^\"\n]*\"|\([^()]*\)){0,8000}\)",
    re.DOTALL,
)
_ARGUMENT = re.compile(
    r"(?<=[(,\s])(\w+)\s*=\s*('[^'\n]*'|\"[^\"\n]*\"|True|False|-?[0-9][0-9_.e+-]*|torch\.\w+)(?=\s*[,)#\n])"
)


def _of_arguments(text: str) -> dict[str, object]:
    """Return the literal arguments of a Python script's TrainingArguments and of its DistributedDataParallel,
    and the type of the weights."""
    found: dict[str, object] = {}
    for call in _ARGUMENTS.finditer(text):
        go_on()
        for name, written in _ARGUMENT.findall(re.sub(r"(?m)#[^'\"\n]*$", "", call[0])):
            value = written.removeprefix("torch.").strip("'\"")
            if call[0].startswith("from_pretrained"):
                if name in ("torch_dtype", "dtype"):
                    found["torch-dtype"] = value
            else:
                found[name.replace("_", "-")] = {"True": True, "False": False}.get(value, value)
    return found


def _of_part(values: Mapping[str, object]) -> dict[str, object]:
    """Return what a file of `_PARTS` says; "auto" in it means the Trainer's own options."""
    found: dict[str, object] = {}
    for key, value in values.items():
        inner = value if isinstance(value, dict) else {}
        if key in ("bf16", "fp16"):
            value = inner.get("enabled")
        elif key == "gradient_accumulation_kwargs":
            key, value = "gradient_accumulation_steps", inner.get("num_steps")
        if type(value) in (bool, int, str) and value != "auto":
            found[str(key).removeprefix("fsdp_").replace("_", "-")] = value
    # DeepSpeed's is that of all devices.
    found.pop("train-batch-size", None)
    return found


class _Said:
    """The options and keys of a command, by names with dashes, and those of the files that it names, which
    apply where the command sets none."""

    def __init__(self, command: Sequence[str], context: CommandContext) -> None:
        self._command = command
        self.odd = list[str]()
        """The values that are not read, each a sentence."""
        self._line = _options_in(command[1:])
        self._launcher = recognised(command).name
        script = started_script(command, context.host_environment, context.directory)
        self._script = script.text if script is not None and script.kind == "python" else ""
        self._values = {**_of_arguments(self._script), **self._of_files(context)}
        self._accelerate: Mapping[str, Any] = {}
        if self._launcher == "accelerate":
            given = self._line.get("config-file")
            found = configuration(given, context.environ, context.directory, context.host_environment)
            self._accelerate = found.values if found is not None else {}
            if found is not None and found.problem:
                not_read(printable(found.path[-80:]), found.problem)

    def _of_files(self, context: CommandContext) -> Mapping[str, object]:
        """Return the top-level keys of the files."""
        plain = [
            word
            for before, word in pairwise(self._command)
            if _FILE.fullmatch(word) and not before.startswith("-") and "=" not in word
        ]
        found: dict[str, object] = {}
        for name in (*plain[:1], self._line.get("config", "")):
            path = below(context.directory, name)
            if _FILE.fullmatch(name):
                values = read_mapping(path, context)
                if name == self._line.get("config") and not context.host_environment.is_file(path):
                    not_read(printable(name[-80:]), "it is no file")
                found |= {str(key).replace("_", "-"): value for key, value in values.items()}
        for option in _PARTS:
            name = self._line.get(option, "")
            if not (name.endswith(".json") or name.startswith("{")):
                continue
            path = below(context.directory, name)
            text = name if name.startswith("{") else context.host_environment.text(path)
            if text is None:
                not_read(printable(name[:80]), "it is no file")
            else:
                values = mapping_in(printable(name[-80:]), text, only_settings=True)
                found = {**_of_part(values), **found}
        return found

    def _given(self, names: Sequence[str]) -> tuple[str, str | None]:
        """Return the first name that has a value, and its value: of the line, then of a file."""
        for values in (self._line, self._values):
            for name in names:
                value = values.get(name)
                if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
                    return name, str(value)
        return "", None

    def text(self, names: Sequence[str]) -> str | None:
        return self._given(names)[1]

    def _read(self, names: Sequence[str], read: Callable[[str], T | None], what: str) -> T | None:
        """Return the value as `read` finds it. Where it is not `what`, a sentence says so."""
        name, value = self._given(names)
        if value is None or value.lower() in _OPEN or name in _OPEN_NUMBERS.get(value, ()):
            return None
        found = read(value)
        if found is None:
            self.odd.append(f"{name} {printable(value[:40])} is not {what}: it is left out of the plan")
        return found

    def number(self, names: Sequence[str]) -> int | None:
        return self._read(names, _whole, f"a whole number from 1 to {_MOST}")

    def flag(self, name: str) -> bool | None:
        """Whether a flag is on, as transformers reads it (`--bf16`, `--bf16 True`, `--no_bf16`); None:
        unset."""
        if name in self._line:
            return self._line[name].lower() not in _FALSE
        stored = self._values.get(name)
        if isinstance(stored, str):
            return stored.lower() in _TRUE
        return stored if isinstance(stored, bool) else None

    def said(self, *names: str) -> bool:
        """Whether one of them is an option of the line, or a key of a file."""
        return any(name in self._line or name in self._values for name in names)

    def model(self, serves: bool) -> str | None:
        for before, word in pairwise(self._command) if serves else ():
            if before == "serve" and not word.startswith("-"):
                return word
        named = self.text((*_MODEL, *_SERVED) if serves else _MODEL)
        # `-m` names a model to llama.cpp, and a module to Python.
        module = is_python(self._command) and [*self._command[1:3]] == ["-m", named]
        return None if module else named

    def serving(self, program: Program | None, context: CommandContext) -> Serving | None:
        """Return what the line says about a server; None for a program of which no plan knows the memory."""
        from gputui.planning.serving import ENGINES, Serving

        if program is None or program.name not in ENGINES:
            return None
        intent = program.intent(self._command, context)
        group = intent.group or (ALL_REDUCE if intent.count is not None else None)
        quantized = (self.text(("quantization", "quantize")) or "").lower()
        # (The intent has read these numbers; here odd ones are noted.)
        for each in program.sizes:
            if each.dimension in ("tp", "pp"):
                self.number(each.options.split("|"))
        adapters, rank = self.number(_LORAS) or 1, self.number(_LORA_RANK) or 16
        given = {**self._values, **self._line}
        left_out = [name for name, value in given.items() if _UNCOUNTED.fullmatch(name) and value != "1"]
        pool = program.name == "SGLang"
        if pool and _TOTAL in given:
            left_out.append(_TOTAL)
        if left_out:
            self.odd.append(f"the plan does not count {', '.join(left_out)}")
        return Serving(
            engine=program.name,
            context=self._read(_CONTEXT if pool else (*_CONTEXT, _TOTAL), _tokens, "a number of tokens"),
            share=self._read(_SHARE, _share, "a share above 0 and up to 1"),
            cache_type=self._read(_CACHE_TYPE, _cache_type, "a type whose size is known") or "",
            sequences=self.number(_REQUESTS),
            batched=self._read(_BATCHED, _tokens, "a number of tokens"),
            quantization="" if quantized in _OPEN else quantized,
            layers=whole_number(self.text(_ON_DEVICES) or ""),
            adapters=adapters if self.flag("enable-lora") else 0,
            rank=rank,
            element=self._read(_TYPE, _ELEMENTS.get, "a type whose size is known") or 2,
            tensor=group.tensor if group is not None else None,
            pipeline=group.pipeline if group is not None else None,
        )

    def uses_trainer(self) -> bool:
        # Lightning has a Trainer, too.
        library = re.search(r"\b(?:transformers|trl)\b", self._script) and "lightning" not in self._script
        if library and "Trainer" in self._script:
            return True
        return self.said(*_TRAINER)

    def precision(self, loads: bool) -> Precision | None:
        """Return the precision. The weights' type counts first: `--bf16` does not change 16-bit weights.

        With `bf16: true`, axolotl loads the weights in bf16 (`base_model` is its name for the model), and so
        does a program with `loads`.
        """
        kind = (self.text(_TYPE) or "").lower().removeprefix("torch.")
        if kind in ("bfloat16", "bf16", "float16", "fp16", "half") or self.flag("pure-bf16"):
            return "bf16"
        if self.flag("bf16"):
            return "bf16" if loads or "base-model" in self._values else "autocast"
        if self.flag("fp16"):
            return "fp16"
        mixed = (self.text(_MIXED) or str(self._accelerate.get("mixed_precision") or "")).lower()
        if mixed == "fp16":
            return "fp16"
        if mixed not in ("", "no"):
            if mixed != "bf16":
                self.odd.append(f"mixed precision {printable(mixed[:40])} is not modelled: bf16 is counted")
            return "autocast"
        if kind in ("float32", "fp32"):
            return "fp32"
        return "fp32" if self.flag("bf16") is False and self.flag("fp16") is not True else None

    def checkpointing(self) -> bool | None:
        if self.flag("disable-gradient-checkpointing"):
            return False
        for name in _CHECKPOINTING:
            found = self.flag(name)
            if found is not None:
                return found
        parts = self._accelerate.get("fsdp_config")
        found = parts.get("fsdp_activation_checkpointing") if isinstance(parts, dict) else None
        return found if isinstance(found, bool) else None

    def lora(self) -> int | None:
        """Return the rank; 0 where another option selects full training."""
        rank = None if self.text(_RANK) == "0" else self.number(_RANK)
        if self.flag("use-peft") or self.flag("use-lora"):
            return rank or _DEFAULT_RANKS["use-peft"]
        for name in _ADAPTER:
            kind = self.text((name,))
            if kind is not None:
                return (rank or _DEFAULT_RANKS.get(name, 8)) if "lora" in kind.lower() else 0
        return rank

    def quantized(self) -> bool:
        if (self.text(("adapter",)) or "").lower() == "qlora":
            return True
        return any(
            self.flag(name) or (self.text((name,)) or "none").lower() not in _FALSE for name in _QUANTIZED
        )

    def offloads(self) -> bool:
        if self._launcher == "deepspeed" or self._accelerate.get("distributed_type") == "DEEPSPEED":
            return True
        return self.said("deepspeed", "use-deepspeed", "deepspeed-config")

    def trains(self) -> bool:
        """Whether an option belongs to training, or the script's name suggests training."""
        if self.said(*_TRAINS):
            return True
        names = [program_name((word,)).lower() for word in self._command if not word.startswith("-")]
        return any(re.search(r"train|finetun|\bsft|run_clm|run_mlm|dpo|grpo", name) for name in names[:4])


def _whole(text: str) -> int | None:
    number = whole_number(text)
    return number if number and number <= _MOST else None


def _tokens(text: str) -> int | None:
    """Return a number of tokens, in vLLM's units: 32768, 32k, 1.5M."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([kKmM]?)", text)
    return int(float(found[1]) * _THOUSANDS.get(found[2], 1)) or None if found else None


def _share(text: str) -> float | None:
    return float(text) if re.fullmatch(r"0?\.[0-9]*[1-9][0-9]*|1(\.0*)?", text) else None


def _cache_type(text: str) -> str | None:
    from gputui.planning.serving import ITEMS

    name = text.lower().removesuffix("fn")
    return name if name in ITEMS else None


def _options_in(words: Sequence[str]) -> dict[str, str]:
    """Return the options and keys among the words: `--a v`, `--a=v`, `a=v`, `x.a=v`. An option without a
    value has "", and `--no-a` sets "a" to "false". The last occurrence counts."""
    found = {option.name.replace("_", "-"): option.value for option in likely_options(words)}
    for word in words:
        key, equals, value = word.lstrip("+").partition("=")
        if equals and not word.startswith("-"):
            found[key.replace("_", "-")] = value
    off = {name.removeprefix("no-"): "false" for name in found if name.startswith("no-")}
    # Hydra's keys are dotted.
    return {name.rpartition(".")[2]: value for name, value in found.items()} | found | off
