"""Proofs that run in the command's own interpreter: which devices it sees, and how fast they copy."""

from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
"""The scripts that run there: the command's interpreter reads them; nothing imports them here."""
