"""The costs of gputui and of its peers, on the same simulated box in one run. It prints and asserts nothing.

`python -m bench` in tests/ (needs the extra `dev` for nvitop and nvisel).
"""
