"""The answer and the findings of this recipe, made from its tables alone."""
