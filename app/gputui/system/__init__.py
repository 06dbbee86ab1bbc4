"""Facts and services of the operating system: processes, users, namespaces, files, descriptors, signals."""
