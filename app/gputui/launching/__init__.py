"""From a selection to a running command: visibility variables, launchers, the launch object, its forms."""
