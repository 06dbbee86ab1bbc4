"""One folder a vendor: its source, the variables that make its devices visible, and its names."""
