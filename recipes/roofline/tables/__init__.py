"""The tables of this recipe, made out of the merged partial."""
