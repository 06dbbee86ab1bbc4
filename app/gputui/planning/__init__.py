"""Model × devices → strategies with memory, traffic and files; comparisons: pure, nothing is started."""
