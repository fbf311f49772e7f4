"""What a worker knows of one rank."""
