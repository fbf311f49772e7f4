"""Where GPU time goes: the census and the line-up of kernels over all ranks."""
