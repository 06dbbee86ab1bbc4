"""Everything gputui prints and paints that has a fixed answer, recorded and compared: run by hand."""
