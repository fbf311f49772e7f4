"""Synthetic profiles and the demo."""
