"""Errors, exit codes, patterns, console and temporary folders: knows nothing of traces."""
