"""Algorithms that several recipes share."""
