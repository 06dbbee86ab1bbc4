"""What gputui costs, beside its peers, on the same simulated box in one run. Prints; asserts nothing.

`python -m bench` in tests/ (needs the extra `dev` for nvitop and nvisel).
"""
