"""Kernels, copies, calls and launches of one rank, or of many."""
