"""Everything with a fixed answer that gputui prints and paints, recorded and compared: run by hand."""
