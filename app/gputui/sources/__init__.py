"""The source protocol, the sources that belong to no vendor (simulated, recorded), and the sampler thread."""
