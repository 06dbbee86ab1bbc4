"""What the script that a command starts says of devices: shell scripts and Python files, read and not run."""
