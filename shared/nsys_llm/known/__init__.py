"""What a run knows of its ranks: the facts that workers compute, and what all of them tell."""
