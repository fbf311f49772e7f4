"""What a name or a code means: kernels, API calls, collectives, phases, idle causes."""
