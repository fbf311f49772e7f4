"""What a result folder needs to show its tables: text, tables and figures.

This package is copied beside every notebook, so that a notebook runs where nothing of ours is
installed. Its modules import each other relatively, and nothing of ours besides.
"""
