"""What makes the tail: slow launches within a launch configuration, and who made whom wait."""
