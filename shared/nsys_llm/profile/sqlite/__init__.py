"""Profiles exported to SQLite: integers from the file's pages, texts through a driver."""
