"""Proofs that run in the command's own interpreter: which devices it sees, and how fast they copy."""
