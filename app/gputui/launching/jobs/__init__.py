"""Jobs: launches that go on by themselves, each with a record, a log and a supervisor of its own."""
