"""The steps of a rank, found in one way for all recipes."""
