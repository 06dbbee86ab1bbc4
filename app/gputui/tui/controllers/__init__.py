"""What the keys of the main screen do: selecting devices, launching, opening pages. The screen shows it."""
