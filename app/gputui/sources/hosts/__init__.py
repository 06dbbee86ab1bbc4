"""Other boxes, reached by the user's own `ssh`: no library, no configuration of ours, gputui on both ends.

alias          what a box may be called
ssh            the `ssh` command, and what its messages mean
remote_script  what the shell there runs: it finds gputui, or asks for it
sent_core      gputui without its screen, as it is sent where it is missing
session        one connection that runs one call of gputui there
calls          one call on each of several boxes
channel        the long connection that brings a box's readings again and again
nvidia_smi     a box without a Python that runs gputui, as nvidia-smi prints it
"""
