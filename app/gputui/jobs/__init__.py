"""Jobs: launches that run independently, each with its own record, log and supervisor."""

FOLDER = "GPUTUI_JOB"
"""The environment variable with the record's folder, for a `gputui run --wait` that is a job itself."""
