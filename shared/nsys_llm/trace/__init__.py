"""One rank in memory: selection, filters, launches, NVTX ranges, devices, rank numbers."""
