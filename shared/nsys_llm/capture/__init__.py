"""What a capture is: decided before anything in it is judged, one question a module."""
