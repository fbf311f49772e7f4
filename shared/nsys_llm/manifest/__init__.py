"""The declared facts of a recipe, and the options made from them."""
