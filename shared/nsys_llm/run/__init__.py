"""From the command line, Python or `nsys recipe` to a published folder."""
