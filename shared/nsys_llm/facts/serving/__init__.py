"""Batches and steps of a serving rank."""
