"""From a selection to a running command: launchers, the launch object, its exports, starting it."""
