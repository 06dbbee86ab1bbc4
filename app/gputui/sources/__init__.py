"""Where facts come from: one file a vendor, simulated boxes, recordings, and the thread that samples them."""
