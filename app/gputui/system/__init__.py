"""What the operating system knows: processes, users, folders, descriptors. Standard library and psutil."""
