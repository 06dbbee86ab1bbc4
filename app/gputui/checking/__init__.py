"""Proofs that run in the command's own interpreter: which devices it sees, and how fast they copy."""

from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
"""What runs there: read by the command's interpreter, never imported here."""
