"""Which ranks exchange how much and how fast, and what pipelines and uneven experts cost."""
