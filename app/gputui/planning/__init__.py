"""Model × devices → strategies with their memory, traffic and files, and comparisons: pure, nothing is started."""
