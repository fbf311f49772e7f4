"""The tables of this recipe, made of merged facts."""
