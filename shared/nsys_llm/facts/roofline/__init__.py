"""What one rank is held against its GPU by."""
