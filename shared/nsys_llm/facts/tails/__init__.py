"""Durations of kernels by launch configuration."""
