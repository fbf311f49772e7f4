"""What changes gain, computed from tables in one place for all recipes."""
