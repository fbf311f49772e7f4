"""What install.py does, and the generated files."""
