"""Intel Gaudi accelerators, as reported by hl-smi."""
