"""Launch requests: what a call asks for as one value, and what its command makes of it."""
