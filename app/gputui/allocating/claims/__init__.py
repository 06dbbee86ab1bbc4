"""Claims: leases on devices, taken just before a launch and held by the kernel as long as its job lives."""
