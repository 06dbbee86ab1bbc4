"""How the devices were used over the last hours: what is kept in memory, and the file that outlives a run."""
