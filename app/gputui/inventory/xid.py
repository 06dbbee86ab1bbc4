"""The meanings of the most common error reports of NVIDIA's driver (XIDs), in a few words each."""

from __future__ import annotations

MEANINGS: dict[int, str] = {
    13: "the program made an illegal access or instruction",
    31: "the program used an invalid GPU address",
    43: "the program's work was stopped after an error of its own",
    45: "the work of a program was cut off: it was killed, or failed before",
    48: "uncorrectable memory error: reset the GPU",
    63: "bad memory was recorded; it is replaced at the next reset",
    64: "bad memory could not be replaced: reset the GPU",
    74: "an NVLink has failed",
    79: "the GPU has fallen off the bus: restart the machine",
    94: "uncorrectable memory error, in one program only: restart that program",
    95: "uncorrectable memory error, not contained: reset the GPU",
    119: "the GPU's system processor does not answer: reset the GPU",
    120: "the GPU's system processor has failed: reset the GPU",
}
"""By number. Source: NVIDIA, "XID Errors" (docs.nvidia.com/deploy/xid-errors), table of common XIDs and
"Working with XID errors"; 13, 31, 43 and 45 are mostly faults of the program, the others of the machine."""
