"""The critical path: what each operation waited for, and the walk back from the end of a step."""
