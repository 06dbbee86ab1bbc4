"""The handlers of the main screen's keys: selecting devices, launching, opening pages."""
