"""What a box is: frozen facts and their JSON. Standard library only; imports nothing else of gputui."""
