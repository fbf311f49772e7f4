"""The timeline of one rank: what was recorded, and what our analyses say of each stretch."""
