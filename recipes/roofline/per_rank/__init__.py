"""What is taken from each rank, before ranks are merged."""
