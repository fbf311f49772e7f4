"""One folder a recipe: `analysis.py` answers its question, `<recipe>.py` is what NVIDIA loads."""
