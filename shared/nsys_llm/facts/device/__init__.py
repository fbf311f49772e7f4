"""Gaps of a device, what caused them, and what overlaps on it."""
