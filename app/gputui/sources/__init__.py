"""What a source is, the sources that are no vendor's (simulated, recorded), and the sampler thread."""
