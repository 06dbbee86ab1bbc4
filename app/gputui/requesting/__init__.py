"""Launch requests: the request of a call as one value, and its preparation with the command's own demands."""
