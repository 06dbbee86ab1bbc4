"""The use of the devices over the last hours: in memory, and in a file that outlives a run."""
