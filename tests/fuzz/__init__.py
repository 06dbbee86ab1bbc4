"""Hostile text at every entrance: files, variables, words and logs with any content.

`tests/unit/test_fuzz.py` tries a few examples of each with every run; `python -m fuzz --minutes 10`, in the
folder tests/, tries many.
"""
