"""A profile on disk becomes a `Trace`: find, export, read, check its schema."""
