"""Pure functions on a snapshot: verdicts, the selection, and which devices are the best to take."""
