"""The recipe nvtx_phase_attribution."""
