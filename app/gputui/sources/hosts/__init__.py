"""Other boxes, reached by the user's own `ssh`: no library, no extra configuration, gputui on both ends.

alias          the valid names of a box
ssh            the `ssh` command, and the meaning of its messages
remote_script  the shell script on the other side: it finds gputui, or requests a copy
sent_core      gputui without its screen, the copy that is sent where gputui is missing
session        one connection that runs one call of gputui on a box
calls          one call on each of several boxes
channel        the long connection that brings a box's readings again and again
nvidia_smi     a box without a Python that runs gputui, as nvidia-smi prints it
"""
