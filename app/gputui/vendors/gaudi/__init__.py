"""Intel Gaudi accelerators, as hl-smi tells them."""
