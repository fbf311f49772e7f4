"""Synthetic profiles, the demo, and a simulated job that knows what everything waited for."""
