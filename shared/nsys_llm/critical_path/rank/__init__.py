"""Windows of steps, what devices did in them, and the paths to their ends."""
