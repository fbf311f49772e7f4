"""Why the GPU was idle: every gap of every device, its cause, and what it costs."""
