"""What ranks are reduced to: the facts that workers compute, and all of them beside each other."""
