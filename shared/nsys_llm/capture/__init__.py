"""What a capture is: whose profiles these are, and what they do not hold."""
