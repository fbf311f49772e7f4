"""Collectives of all ranks: matched, on one clock, with who waited for whom."""
