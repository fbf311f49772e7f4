"""Phases, NVTX ranges and steps of one rank, or of many."""
