"""What changed between two runs of a job, why, and whether it is real."""
