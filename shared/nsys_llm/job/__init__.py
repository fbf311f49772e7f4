"""What only all ranks together show: clocks, matched collectives, stages, who is slow."""
