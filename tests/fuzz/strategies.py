"""Hostile text and documents."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

NASTY = st.sampled_from(
    [
        *(
            "",
            " ",
            "\0",
            "\n",
            "\x1b[2J",
            "\x1b]0;x\x07",
            "\u202e",
            "\udcff",
            "..",
            "/",
            "~",
            "-",
            "--",
            "-1",
        ),
        *(
            "N/A",
            "nan",
            "1e999",
            "9" * 30,
            "０",
            "é" * 300,
            "GPU-",
            "MIG-",
            "${x}",
            "$(x)",
            "{message}",
            "%s",
        ),
    ]
)
TEXT = NASTY | st.text(max_size=20)
NUMBERS = (
    st.sampled_from([0, -1, 1, 2**31, 2**63, 2**70, 1e308, -0.5, float("nan"), float("inf")]) | st.integers()
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, each in inner for found in _places(each, (*place, key)))]


@st.composite
def damaged(draw: st.DrawFn, document: Any, most: int = 5) -> Any:
    """A document in which some places have other values, are missing, or are there twice."""
    made = copy.deepcopy(document)
    places = [place for place in _places(made) if place]
    for place in draw(st.lists(st.sampled_from(places), max_size=most)):
        *way, key = place
        inner = made
        try:
            for step in way:
                inner = inner[step]
            how = draw(st.integers(0, 4))
            if how == 0:
                del inner[key]
            elif how == 1 and isinstance(inner, list):
                inner.insert(key, copy.deepcopy(inner[key]))
            elif how == 2:
                other = draw(st.sampled_from(places))
                value = made
                for step in other:
                    value = value[step]
                inner[key] = copy.deepcopy(value)
            else:
                inner[key] = draw(JSON)
        except (KeyError, IndexError, TypeError):
            # An earlier change has removed that place.
            continue
    return made


@st.composite
def bytes_of(draw: st.DrawFn, document: Any) -> bytes:
    """A damaged document as a file, possibly cut off, or with other bytes in it."""
    data = json.dumps(draw(damaged(document))).encode(errors="surrogatepass")
    if draw(st.integers(0, 5)) == 0:
        data = data[: draw(st.integers(0, len(data)))] + draw(st.binary(max_size=8))
    return data
