"""The ioctls of xe and i915, compared with the kernel's own headers: numbers, sizes and offsets.

This needs a C compiler and the headers (linux-libc-dev or libdrm-dev; CPATH may name another folder of them).
No render node is opened: a stand-in for the kernel reads and writes at the header's offsets.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from gputui.vendors.intel import memory

GIB = 1024**3
_COMPILER = os.environ.get("CC", "cc")

XE = {
    "request": "DRM_IOCTL_XE_DEVICE_QUERY",
    "question": "DRM_XE_DEVICE_QUERY_MEM_REGIONS",
    "asked": "sizeof(struct drm_xe_device_query)",
    "at_question": "offsetof(struct drm_xe_device_query, query)",
    "at_size": "offsetof(struct drm_xe_device_query, size)",
    "at_data": "offsetof(struct drm_xe_device_query, data)",
    "first": "offsetof(struct drm_xe_query_mem_regions, mem_regions)",
    "region": "sizeof(struct drm_xe_mem_region)",
    "kind": "offsetof(struct drm_xe_mem_region, mem_class)",
    "total": "offsetof(struct drm_xe_mem_region, total_size)",
    "amount": "offsetof(struct drm_xe_mem_region, used)",
    "device": "DRM_XE_MEM_REGION_CLASS_VRAM",
}
I915 = {
    "request": "DRM_IOCTL_I915_QUERY",
    "question": "DRM_I915_QUERY_MEMORY_REGIONS",
    "asked": "sizeof(struct drm_i915_query)",
    "items": "offsetof(struct drm_i915_query, items_ptr)",
    "item": "sizeof(struct drm_i915_query_item)",
    "at_question": "offsetof(struct drm_i915_query_item, query_id)",
    "at_size": "offsetof(struct drm_i915_query_item, length)",
    "at_data": "offsetof(struct drm_i915_query_item, data_ptr)",
    "first": "offsetof(struct drm_i915_query_memory_regions, regions)",
    "region": "sizeof(struct drm_i915_memory_region_info)",
    "kind": "offsetof(struct drm_i915_memory_region_info, region.memory_class)",
    "total": "offsetof(struct drm_i915_memory_region_info, probed_size)",
    "amount": "offsetof(struct drm_i915_memory_region_info, unallocated_size)",
    "device": "I915_MEMORY_CLASS_DEVICE",
}


def header(folder: Path, name: str, wanted: dict[str, str]) -> dict[str, int]:
    """The header's values; skips if there is no compiler, or no header has them."""
    if shutil.which(_COMPILER) is None:
        pytest.skip(f"there is no {_COMPILER}")
    prints = "".join(
        f'printf("{key} %llu\\n", (unsigned long long)({what}));' for key, what in wanted.items()
    )
    for include in (f"drm/{name}", f"libdrm/{name}"):
        source = folder / "told.c"
        source.write_text(
            f"#include <stddef.h>\n#include <stdio.h>\n#include <{include}>\nint main(void) {{{prints}}}\n"
        )
        words = [_COMPILER, "-I/usr/include/libdrm", "-o", str(folder / "told"), str(source)]
        if subprocess.run(words, capture_output=True, check=False).returncode == 0:
            told = subprocess.run([str(folder / "told")], capture_output=True, text=True, check=True).stdout
            return {key: int(number) for key, number in (line.split() for line in told.splitlines())}
    pytest.skip(f"no {name} that has the query")


def answer(says: dict[str, int], regions: list[tuple[int, int, int]]) -> bytes:
    """The answer for regions (class, total, the third amount) in the header's layout."""
    data = bytearray(says["first"] + says["region"] * len(regions))
    struct.pack_into("=I", data, 0, len(regions))
    for place, (kind, total, amount) in enumerate(regions):
        start = says["first"] + place * says["region"]
        struct.pack_into("=H", data, start + says["kind"], kind)
        struct.pack_into("=Q", data, start + says["total"], total)
        struct.pack_into("=Q", data, start + says["amount"], amount)
    return bytes(data)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the render node, and return the list of opened paths."""
    found: list[str] = []
    real = os.open
    monkeypatch.setattr(
        memory.os, "open", lambda path, flags, *more: found.append(path) or real("/dev/null", os.O_RDWR)
    )
    return found


def put(says: dict[str, int], words: bytearray | ctypes.Array[ctypes.c_char], data: bytes, size: str) -> None:
    """Answer one query as a kernel does: report the size, or fill the memory that it is given."""
    given = struct.unpack_from(f"={size}", words, says["at_size"])[0]
    if given == 0:
        struct.pack_into(f"={size}", words, says["at_size"], len(data))
    else:
        assert given == len(data)
        ctypes.memmove(struct.unpack_from("=Q", words, says["at_data"])[0], data, len(data))


def test_xe_is_asked_as_its_header_says(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    says = header(tmp_path, "xe_drm.h", XE)
    device = says["device"]
    data = answer(says, [(1 - device, 64 * GIB, GIB), (device, 16 * GIB, 3 * GIB), (device, 16 * GIB, 0)])

    def kernel(_: int, request: int, words: bytearray, mutate: bool) -> int:
        assert (request, len(words), mutate) == (says["request"], says["asked"], True)
        assert struct.unpack_from("=I", words, says["at_question"])[0] == says["question"]
        put(says, words, data, "I")
        return 0

    monkeypatch.setattr(fcntl, "ioctl", kernel)
    # A program without CAP_PERFMON is told that nothing is in use, so the used memory is unknown.
    assert memory.ask("renderD128", "xe") == ((16 * GIB, 3 * GIB), (16 * GIB, None))
    assert opened == ["/dev/dri/renderD128"]


@pytest.mark.usefixtures("opened")
def test_i915_is_asked_as_its_header_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = header(tmp_path, "i915_drm.h", I915)
    device = says["device"]
    data = answer(says, [(1 - device, 64 * GIB, GIB), (device, 6 * GIB, 4 * GIB)])

    def kernel(_: int, request: int, words: bytearray, mutate: bool) -> int:
        assert (request, len(words), mutate) == (says["request"], says["asked"], True)
        assert struct.unpack_from("=I", words, 0)[0] == 1
        at = struct.unpack_from("=Q", words, says["items"])[0]
        item = (ctypes.c_char * says["item"]).from_address(at)
        assert struct.unpack_from("=Q", item, says["at_question"])[0] == says["question"]
        put(says, item, data, "i")
        return 0

    monkeypatch.setattr(fcntl, "ioctl", kernel)
    assert memory.ask("renderD128", "i915") == ((6 * GIB, 2 * GIB),)
