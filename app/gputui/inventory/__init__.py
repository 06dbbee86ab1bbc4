"""The facts of a box, frozen, and their JSON. Standard library only; imports nothing else of gputui."""
