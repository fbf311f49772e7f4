"""Idle time of one rank, or of many."""
