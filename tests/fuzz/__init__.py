"""Strangers' text at every entrance: files, variables, words and logs that say anything at all.

`tests/unit/test_fuzz.py` tries a few examples of each with every run; `python -m fuzz --minutes 10`, in the
folder tests/, many.
"""
