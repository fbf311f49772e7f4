"""How far each step, and each GEMM, is from what the hardware can do."""
