"""NVTX ranges of GPU operations: trees of ranges, steps, phases."""
