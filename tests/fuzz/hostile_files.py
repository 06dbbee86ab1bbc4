"""Files that are made to be slow to read: each is a function from a size in bytes to its contents.

Each is a construct that has made some parser slow, or that asks for more memory than it has bytes: openers
that nothing closes, nesting, aliases, long lines, numbers without an end, bait for regular expressions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from gputui.inventory.readings import HEAD

Made = Callable[[int], bytes]


def _repeated(piece: str | bytes, before: str | bytes = b"", after: str | bytes = b"") -> Made:
    """As many copies of a piece as fit, between two ends."""
    inner, first, last = (
        each if isinstance(each, bytes) else each.encode() for each in (piece, before, after)
    )
    return lambda size: first + inner * max(1, (size - len(first) - len(last)) // len(inner)) + last


def _numbered(piece: Callable[[int], str], before: str = "", after: str = "") -> Made:
    """Pieces that differ by their number."""

    def made(size: int) -> bytes:
        pieces, length, number = [before], len(before) + len(after), 0
        while length < size:
            pieces.append(piece(number))
            length += len(pieces[-1])
            number += 1
        return "".join([*pieces, after]).encode()

    return made


def _nested(opener: str, closer: str, inside: str = "", before: str = "", after: str = "") -> Made:
    """Pieces within each other, all closed."""

    def made(size: int) -> bytes:
        depth = max(1, (size - len(before) - len(after)) // (len(opener) + len(closer)))
        return (before + opener * depth + inside + closer * depth + after).encode()

    return made


def _doubling(line: Callable[[int], str], before: str, last: Callable[[int], str]) -> Made:
    """Lines each of which contains the line above several times; as many as fit."""

    def made(size: int) -> bytes:
        text, number = before, 1
        while len(text) + len(line(number)) + len(last(number)) < size:
            text += line(number)
            number += 1
        return (text + last(number - 1)).encode()

    return made


_BYTES: Mapping[str, Made] = {
    "NUL bytes": _repeated(b"\0"),
    "NUL bytes between words": _repeated(b"a \0"),
    "bytes that are no UTF-8": _repeated(b"\xff\xc0\x80"),
    "one long word": _repeated("a"),
    "spaces": _repeated(" "),
    "tabs and spaces": _repeated("\t "),
    "empty lines": _repeated("\n"),
    "carriage returns": _repeated("\r"),
    "other ends of lines": _repeated("\v\f\x1c\x85\u2028"),
    "backslashes": _repeated("\\"),
    "continued lines": _repeated("a\\\n"),
    "quotes": _repeated("'\""),
    "escape sequences": _repeated("\x1b["),
    "equals signs": _repeated("a=a "),
    "digits": _repeated("9"),
    "two letters by turns": _repeated("a:"),
    **{
        f"openers {each}": _repeated(each) for each in ("(", "[", "{", "[{", "<", "$(", "${", "`", "((", "[[")
    },
}

_YAML: Mapping[str, Made] = {
    "merges of merges": _doubling(
        lambda n: f"k{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n",
        "distributed_type: MULTI_GPU\nk0: &a0 {x: 1}\n",
        lambda n: f"e:\n  <<: *a{n}\n",
    ),
    "aliases of aliases": _doubling(
        lambda n: f"k{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n",
        "distributed_type: MULTI_GPU\nk0: &a0 [x]\n",
        lambda n: f"gpu_ids: *a{n}\n",
    ),
    "one mapping merged often": _numbered(
        lambda n: "  <<: *a\n", "a: &a {" + ", ".join(f"k{n}: 1" for n in range(500)) + "}\nb:\n"
    ),
    "a list that holds itself": _repeated("a: &a [*a]\n"),
    "nested lists": _nested("[", "]", before="distributed_type: "),
    "nested mappings": _nested("{a: ", "}", before="distributed_type: "),
    "nested keys": _nested("{? ", "}", "a"),
    "nested dashes": _repeated("- "),
    "question marks": _repeated("? "),
    "deeper and deeper": lambda size: b"".join(
        b" " * n + b"a:\n" for n in range(max(1, int((2 * size) ** 0.5) - 3))
    ),
    "many keys": _numbered(lambda n: f"{n}: 1\n", "distributed_type: MULTI_GPU\n"),
    "keys of equal hash": _numbered(lambda n: f"{n * (2**61 - 1)}: 1\n", "distributed_type: MULTI_GPU\n"),
    "many list entries": _repeated("- 1\n"),
    "a flow of ones": _repeated("1,", "a: [", "]"),
    "a number base 60": _repeated(":59", "distributed_type: MULTI_GPU\nnum_processes: 1"),
    "a number of digits": _repeated("9", "distributed_type: MULTI_GPU\nnum_processes: "),
    "a hexadecimal number": _repeated("f", "distributed_type: MULTI_GPU\nnum_processes: 0x"),
    "hexadecimal numbers": _repeated("f", "distributed_type: MULTI_GPU\ngpu_ids: 0x"),
    "underscores in a number": _repeated("_", "distributed_type: MULTI_GPU\nnum_processes: 1"),
    "dots": _repeated("1.", "a: "),
    "times": _repeated("- 2001-12-14t21:59:43.10-05:00\n"),
    "sets": _repeated("- !!set {a, b}\n"),
    "omaps": _repeated("- !!omap [a: 1]\n"),
    "binaries": _repeated("- !!binary aGVsbG8=\n"),
    "anchors": _numbered(lambda n: f"- &a{n} x\n"),
    "documents": _repeated("---\na: 1\n"),
    "tags": _repeated("!a ", "%TAG ! tag:a,2000:\n---\n"),
    "directives": _repeated("%TAG !a! tag:b\n"),
    "long block scalar": _repeated("  a\n", "a: >\n"),
}

_JSON: Mapping[str, Made] = {
    "lists within lists": _nested("[", "]"),
    "objects within objects": _nested('{"a":', "}", "1"),
    "empty lists": _repeated("[],", "[", "[]]"),
    "empty objects": _repeated("{},", "[", "{}]"),
    "small objects": _repeated('{"a":{}},', "[", "{}]"),
    "ones": _repeated("1,", "[", "1]"),
    "floats": _repeated("1.5,", "[", "1]"),
    "short texts": _numbered(lambda n: f'"{n:x}",', "[", "1]"),
    "keys": _numbered(lambda n: f'"{n:x}":1,', "{", '"":1}'),
    "files of an index": _numbered(lambda n: f'"{n:x}":"{n:x}",', '{"weight_map":{', '"":""}}'),
    "a long number": _repeated("9", '{"model_type":"llama","hidden_size":', "}"),
    "numbers of 4,000 digits": _repeated("9" * 4000 + ",", "[", "1]"),
    "a number with an exponent": _repeated("9", '{"hidden_size":1e', "}"),
    "escapes": _repeated("\\u0061", '{"a":"', '"}'),
    "half surrogates": _repeated("\\ud800", '{"model_type":"', '"}'),
    "wide characters": _repeated("\U0001f600", '{"model_type":"', '"}'),
    "one wide character in a long text": _repeated("a", '{"model_type":"\U0001f600', '"}'),
    "a weight map": _numbered(
        lambda n: f'"model.layers.{n}.w":"model-{n % 4000:05}.safetensors",', '{"weight_map":{', '"":"a"}}'
    ),
    "layer types": _repeated('"a",', '{"model_type":"llama","layer_types":[', '"a"]}'),
}

_SHELL: Mapping[str, Made] = {
    "here-documents": _repeated("cat <<A\n"),
    "here-documents that end": _repeated("cat <<A\n$(x)\nA\n"),
    "substitutions": _nested("$(a ", ")"),
    "substitutions in quotes": _nested('"$(a ', ')"'),
    "backticks": _repeated("`a `b"),
    "expansions": _nested("${a:-", "}"),
    "expansions that stay open": _repeated("${a:-"),
    "arithmetic": _nested("$((1+", "))", "1"),
    "parentheses in arithmetic": _nested("(", ")", "1", "a=$((", "))"),
    "subshells": _nested("(", ")", "a"),
    "groups": _nested("{ ", "; }", "a"),
    "ifs": _nested("if a; then\n", "fi\n"),
    "ifs side by side": _repeated("if a; then b=$b$b; fi\n"),
    "undecided branches": _numbered(lambda n: f"if a; then v{n}=1; else v{n}=2; fi\n"),
    "branches that stay open": _repeated("if a; then\n"),
    "functions": _numbered(lambda n: f"f{n}() {{ f{n - 1}; f{n - 1}; }}\n", "f() { a; }\n"),
    "functions that call each other": _numbered(
        lambda n: f"f{n + 1}() {{ f{n}; f{n}; f{n}; }}\nf{n + 1}\n", "f0() { python a.py; }\n"
    ),
    "a function that calls itself": _repeated("f\n", "f() { f; f; }\n"),
    "loops within loops": _nested("for a in 1 2 3 4 5 6 7 8 9; do\n", "done\n", "python $a\n"),
    "loops side by side": _repeated("for a in 1 2 3 4 5 6 7 8 9; do python $a; done\n"),
    "doubled variables": _repeated("a=$a$a\n", "a=x\n"),
    "doubled lists": _repeated('a=("${a[@]}" "${a[@]}")\n', "a=(x)\n"),
    "comments in an array that stays open": _repeated("#", "a=("),
    "backticks in an array that stays open": _repeated("`a`", "a=("),
    "a long variable, often": _repeated("$a", "a=" + "x" * 16 + "\n" + "a=$a$a\n" * 9 + "b="),
    "a long list, often": _repeated('"${a[@]}"', "a=(" + "x " * 8000 + ")\nb="),
    "a long variable in many words": _repeated(
        "c " + "$a " * 1900 + "\n", "a=" + "x" * 16 + "\n" + "a=$a$a\n" * 9
    ),
    "doubled variables that are not known": _repeated("b=$b$b\n", "read y\nb=$(y)$y\n"),
    "here-documents of one line": lambda size: (
        "cat "
        + " ".join(f"<<a{n}" for n in range(size // 12))
        + "\n"
        + "".join(f"a{n}\n" for n in range(size // 12))
    ).encode(),
    "a long list that is used": _repeated("x ", "a=(", ")\n" + 'python "${a[@]}"\n' * 500),
    "doubled arguments": _repeated('set -- "$@" "$@"\n', "set -- a\n"),
    "evals": _repeated("eval "),
    "eval of eval": _repeated('a=\'eval "$a$a"\'\neval "$a"\n'),
    "sources of itself": _repeated('. "$0"\n. ./file\n'),
    "cases": _repeated("case $a in x) b;; *) c;; esac\n"),
    "patterns": _repeated("*[!a]", "a=" + "a" * 100 + "\ncase $a in ", ") b;; esac\n"),
    "tests": _repeated("[ $a = b ] && "),
    "tests of patterns": _repeated("[[ $a == *a* ]] || "),
    "pipes": _repeated("a | "),
    "negations": _repeated("! "),
    "backgrounds": _repeated("a & "),
    "redirections": _repeated(">a "),
    "exports": _numbered(lambda n: f"export v{n}=1\n", "", "python a.py\n" * 100),
    "commands": _numbered(lambda n: f"python a{n}.py\n"),
    "torchruns": _numbered(lambda n: f"torchrun --nproc-per-node=$N{n} a{n}.py\n"),
    "variables before commands": _numbered(lambda n: f"CUDA_VISIBLE_DEVICES={n} python a{n}.py &\n"),
    "words of a command": _repeated("a ", "python x.py "),
    "assignments before a command": _repeated("A=b ", "", "python x.py\n"),
    "scripts of scripts": _numbered(lambda n: f"bash -c 'bash -c \"python a{n}.py\"'\n"),
    "braces": _repeated("{a,b}", "python "),
    "ranges": _repeated("{1..9}", "python "),
    "numbers in arithmetic": _repeated("9", "a=$((", "))\n"),
    "multiplied": _repeated("a=$((a*a))\n", "a=99999\n"),
    "comments": _repeated("# a\n"),
    "half a for": _repeated("for a in "),
    "half a case": _repeated("case a in "),
    "mixed openers": _repeated("$(${`\"'(("),
    "bash -c in words": _repeated("env nice "),
    "slow for patterns": _repeated("$(echo $A | tr ", "a=", ""),
}

_PYTHON: Mapping[str, Made] = {
    "parentheses": _nested("(", ")", "1"),
    "lists": _nested("[", "]"),
    "dictionaries": _nested("{1:", "}", "1"),
    "openers of dictionaries": _repeated("{1:"),
    "calls": _nested("a(", ")"),
    "calls that stay open": _repeated("a("),
    "subscripts that stay open": _repeated("a["),
    "lambdas": _repeated("lambda:"),
    "nots": _repeated("not ", "x = ", "1"),
    "minuses": _repeated("-", "x = ", "1"),
    "awaits": _repeated("await "),
    "stars": _repeated("*"),
    "sums": _repeated("1+", "x = ", "1"),
    "powers": _repeated("1**", "x = ", "1"),
    "comparisons": _repeated("a<", "x = ", "a"),
    "ands": _repeated("a and ", "x = ", "a"),
    "conditional expressions": _repeated("a if a else ", "x = ", "a"),
    "attributes": _repeated(".a", "x = a"),
    "calls of calls": _repeated("()", "x = a"),
    "subscripts of subscripts": _repeated("[0]", "x = a"),
    "assignments in a row": _repeated("a = ", "", "1"),
    "tuples of numbers": _repeated("0,", "x = "),
    "tuples of names": _repeated("a,", "x = "),
    "tuples of empty tuples": _repeated("(),", "x = "),
    "statements": _repeated("a\n"),
    "statements on a line": _repeated("a;"),
    "passes": _repeated("pass\n"),
    "ifs": lambda size: b"".join(b" " * n + b"if a:\n" for n in range(90)) + b" " * 90 + b"a;" * (size // 2),
    "deeper ifs": lambda size: b"".join(
        b" " * n + b"if a:\n" for n in range(max(1, int((2 * size) ** 0.5) - 6))
    ),
    "elifs": _repeated("elif a:\n pass\n", "if a:\n pass\n"),
    "elses that stay open": _repeated("if a:\n pass\nelse:\n "),
    "tries": _repeated("try:\n a\nexcept a:\n a\n"),
    "decorators": _repeated("@a\n"),
    "parameters": _numbered(lambda n: f"a{n}=0,", "def f(", "): pass"),
    "keywords": _numbered(lambda n: f"a{n}=0,", "f(", ")"),
    "format strings": _nested("f'{", "}'", "1"),
    "braces in a format string": _repeated("{a}", "f'", "'"),
    "braces that stay open in a format string": _repeated("{", "f'", "'"),
    "strings side by side": _repeated("'' ", "x = ", "''"),
    "a string that stays open": _repeated("'''a\n"),
    "comprehensions": _repeated("for a in a ", "[a ", "]"),
    "comprehensions in comprehensions": _nested("[a for a in ", "]", "a"),
    "generators that stay open": _repeated("(a for a in "),
    "matches": _repeated("case a:\n  a\n", "match a:\n "),
    "patterns of matches": _nested("[", "]", "a", "match a:\n case ", ":\n  a\n"),
    "alternatives of patterns": _repeated("1|", "match a:\n case ", "1: a\n"),
    "types": _nested("a[", "]", "a", "x: ", " = 1\n"),
    "withs": _repeated("a as b, ", "with ", "c: pass"),
    "withs in parentheses": _repeated("(a, ", "with "),
    "imports": _repeated("a, ", "from a import ", "b"),
    "globals": _repeated("a, ", "def f(): global ", "b"),
    "dels": _repeated("(a, ", "del "),
    "a wrong word at the end": _repeated("a = 1\n", "", "a b c"),
    "a long number": _repeated("9", "x = "),
    "a hexadecimal number": _repeated("f", "x = 0x"),
    "names that are set": _numbered(lambda n: f"a{n} = {n}\n"),
    "names of names": _numbered(lambda n: f"a{n + 1} = a{n}\n", "a0 = 'x'\n"),
    "lists of devices": _numbered(lambda n: f"os.environ['CUDA_VISIBLE_DEVICES'] = '{n}'\n", "import os\n"),
    "a list of devices behind spaces": _repeated(" ", "os.environ['CUDA_VISIBLE_DEVICES'] = "),
    "an import of a trainer before spaces": _repeated(" ", "from transformers import "),
    "imports of trainers that stay open": _repeated("from transformers import (x\n"),
    "half a list of devices": _repeated("os.environ['CUDA_VISIBLE_DEVICES'] = '", "import os\n("),
    "indices": _repeated("x.to('cuda:1')\n"),
    "environs": _repeated("os.environ[", "import os\nx = "),
    "arguments of the trainer": _repeated("a=TrainingArguments(", "x = ", ")"),
    "types of weights": _numbered(lambda n: "a.from_pretrained(dtype=" + "a." * 1000 + "a)\n"),
    "semicolons": _repeated(";"),
    "unicode names": _repeated("ａ;"),
    "dedents": _repeated("if a:\n if a:\n  if a:\n   a\n"),
    "a list in lists": _repeated("a = [a, a]\n"),
    "set device": _repeated("torch.cuda.set_device(int(os.environ.get('LOCAL_RANK', 0)))\n"),
}

_LINES: Mapping[str, Made] = {
    "slots": _numbered(lambda n: f"host{n} slots=8\n"),
    "no slots": _repeated("a" * 50 + " \t \n"),
    "half slots": _repeated("a slots="),
    "spaces before slots": _repeated(" ", "a", "slots"),
    "tasks": _numbered(lambda n: f"python a.py --seed {n}\n"),
    "one long task": _repeated("a ", "python "),
    "empty words in many tasks": _repeated("a" + " ''" * 66 + "\n"),
    "tasks in quotes": _repeated("python a.py --name 'a b' --cfg '{\"a\": [1, 2]}' --out \"c\"\n"),
    "words in lines of 8,000": _repeated("a " * 4000 + "\n"),
    "marks in lines of 8,000": _repeated("~$a{*#" * 1300 + "\n"),
    "comments": _repeated("#\n"),
    "quoted letters": _repeated("\\a", "python "),
    "open quotes": _repeated("'a' ", "python "),
    "dollars": _repeated("$", "python "),
    "homes": _repeated("~a ", "python "),
    "speeds": _repeated("1.5 it/s "),
    "numbers before speeds": _repeated("111111111111111.", "", " it/s\n"),
    "lines of speeds": _repeated("1.5it/s\n"),
    "bars": _repeated("| 1/2 [0:01<"),
    "lines of bars": _numbered(lambda n: f"{n}% | {n}/{n + 1} [00:01<00:01, 1.5it/s]\r"),
    "clocks": _repeated("1 day, ", "train_runtime: ", "0:00:01"),
    "train words": _repeated("train_runtime: 1 "),
    "colours": _repeated("\x1b[0m", "", "1 it/s"),
    "colours that stay open": _repeated("\x1b[0;", "", "/s"),
    "titles that stay open": _repeated("\x1b]0;"),
    "matrix": _numbered(lambda n: f"GPU{n}\tNV1\tNV2\n", "\tGPU0\tGPU1\n"),
    "wide matrix": _numbered(lambda n: f"\tGPU{n}", "", "\n"),
    "first line": _repeated("/a ", "#!/usr/bin/env "),
    "words of env": _repeated("-S ", "#!/usr/bin/env "),
}

_TOML: Mapping[str, Made] = {
    "a key in keys": _repeated(".a", "a", "=1\n"),
    "keys in keys": _repeated("a" + ".a" * 390 + "=1\n"),
    "tables": _numbered(lambda n: f"[rules{n}.a]\nx=1\n"),
    "tables of one name": _repeated("[[a.b]]\n"),
    "tables in a list": _repeated("{a.b=1},", "a=[", "]\n"),
    "lists in lists": _repeated("[", "a="),
    "digits": _repeated("9", "a=", "\n"),
    "escapes": _repeated("\\u0041", 'a="', '"\n'),
}


def _header(count: int, *pieces: bytes) -> bytes:
    """The beginning of a GGUF file that says it has so many keys."""
    return b"GGUF\3\0\0\0" + struct.pack("<QQ", 1, count) + b"".join(pieces)


def _text(words: bytes) -> bytes:
    return struct.pack("<Q", len(words)) + words


_MANY = (1 << 64) - 1
_OF_TEXTS = struct.pack("<IIQ", 9, 8, 999)
_GGUF: Mapping[str, Made] = {
    "keys without a letter": _repeated(b"\0" * 13, _header(_MANY)),
    "keys of a number": _repeated(_text(b"a") + struct.pack("<Ii", 5, 1), _header(_MANY)),
    "one long key": lambda size: _header(_MANY, _text(b"a" * size), struct.pack("<Ii", 5, 1)),
    "a length beyond the file": _repeated(b"\xff", _header(_MANY)),
    "lists in lists": _repeated(struct.pack("<IQ", 9, 1), _header(1, _text(b"a"), struct.pack("<I", 9))),
    "wide lists in lists": _repeated(
        struct.pack("<IQ", 9, 999), _header(1, _text(b"a"), struct.pack("<I", 9))
    ),
    "lists of numbers in a list": _repeated(
        struct.pack("<IQ", 0, 999) + b"\1" * 999,
        _header(_MANY, _text(b"a"), struct.pack("<IIQ", 9, 9, 999)),
    ),
    "lists of different kinds": _repeated(
        struct.pack("<IQ", 0, 1) + b"\1" + struct.pack("<IQ", 8, 1) + b"\0" * 8,
        _header(_MANY, _text(b"a"), struct.pack("<IIQ", 9, 9, 2)),
    ),
    "a long architecture": _repeated(
        b"\xff",
        _header(_MANY, _text(b"general.architecture"), struct.pack("<IQ", 8, 1_000_000)),
    ),
    "lists of empty texts": _repeated(_text(b"a") + _OF_TEXTS + b"\0" * 8 * 999, _header(_MANY)),
    "a shape without an end": _repeated(
        _text(b"llama.attention.head_count") + struct.pack("<IIQ", 9, 4, 999) + b"\xff" * 4 * 999,
        _header(_MANY, _text(b"general.architecture"), struct.pack("<I", 8), _text(b"llama")),
    ),
}

_ROW = b"2026-11-26T12:00:00+00:00,box" + b"," * 43 + b"\n"
_CSV: Mapping[str, Made] = {
    "rows of one moment": _repeated(_ROW, HEAD),
    "an open quote": _repeated("a,\n", HEAD + b'"'),
    "one long cell": _repeated("[", HEAD + b"2026-11-26T12:00:00+00:00,box,"),
    "cells of lists": _repeated(
        b"2026-11-26T12:00:00+00:00,box" + b',"[' + b"[]," * 40000 + b'[]]"' + b"," * 42 + b"\n", HEAD
    ),
    "cells without an end": _repeated(",", HEAD),
    "empty rows": _repeated("\n", HEAD),
}

_READING = (
    '{"schema": 1, "host": "a", "time": "2026-11-26T12:00:00+00:00", "driver": null, "cuda": null, %s}\n'
)
_READINGS: Mapping[str, Made] = {
    "readings of one moment": _repeated(_READING % '"devices": [], "links": [], "errors": []'),
    "readings of ones": _repeated(_READING % f'"devices": [], "links": [], "errors": [{"1," * 20000}1]'),
    "two long readings": lambda size: 2 * (b'{"a": [' + b"1," * (size // 4) + b"1]}\n"),
}

_DAYS: Mapping[str, Made] = {
    "rows": _repeated(',["a",1,1,1,1,1,1,1,1]', '[1.0,2.0,3.0,{},{}]\n[["a",1]', "]\n[]\n[]"),
    "lines": _repeated("[]\n", "[1.0,2.0,3.0,{},{}]\n"),
    "labels": _numbered(lambda n: f'"{n}":"b",', "[1.0,2.0,3.0,{", '"a":"b"},{}]\n[]\n[]\n[]'),
    "counters": _numbered(lambda n: f'"{n}":[1,2],', "[1.0,2.0,3.0,{},{", '"a":[1,2]}]\n[]\n[]\n[]'),
    "nested": _nested("[", "]"),
    "a number of many digits": _repeated("9", "[", "]"),
    "small objects": _repeated("{},", "[", "{}]"),
    "a text of escapes": _repeated("\\u0041", '["', '"]'),
}

EVERY: Mapping[str, Made] = {
    f"{kind}: {name}": made
    for kind, files in (
        ("bytes", _BYTES), ("YAML", _YAML), ("JSON", _JSON), ("shell", _SHELL),
        ("Python", _PYTHON), ("lines", _LINES), ("TOML", _TOML), ("GGUF", _GGUF), ("CSV", _CSV),
        ("readings", _READINGS), ("days", _DAYS),
    )
    for name, made in files.items()
}  # fmt: skip
