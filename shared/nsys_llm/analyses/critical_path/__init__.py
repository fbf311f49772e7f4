"""What the time of a step depends on: `critical_path.py` is the way in."""
