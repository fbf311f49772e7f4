"""The recipe step_budget."""
