"""Sums of runs that are compared."""
