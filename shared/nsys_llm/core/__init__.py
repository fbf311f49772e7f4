"""Errors, exit codes, units, patterns, console and temporary folders: knows nothing of traces."""
