"""Jobs: launches that go on by themselves, each with a record, a log and a supervisor of its own."""

FOLDER = "GPUTUI_JOB"
"""The variable with the record's folder, for a `gputui run --wait` that is a job itself."""
