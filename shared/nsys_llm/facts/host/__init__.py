"""What host threads did while a GPU waited for them: states, and what samples say of them."""
