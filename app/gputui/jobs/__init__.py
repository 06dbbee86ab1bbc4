"""Jobs: launches that go on by themselves, each with a record, a log and a supervisor of its own."""

FOLDER = "GPUTUI_JOB"
"""The variable that tells a `gputui run --wait` that is a job itself where its record is."""
