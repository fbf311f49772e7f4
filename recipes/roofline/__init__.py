"""What a step of a server costs by its batch, and what users wait between tokens."""
