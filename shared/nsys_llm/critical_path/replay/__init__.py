"""Runs a recorded job again with something changed."""
