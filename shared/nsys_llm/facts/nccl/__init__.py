"""NCCL's calls of one rank."""
