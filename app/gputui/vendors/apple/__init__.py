"""The GPU of a Mac with Apple silicon, as reported by ioreg."""
