"""All recipes in one pass over each profile, and one page on top of them."""
