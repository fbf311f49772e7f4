"""What few captures record, or an option asks for: of each topic, a rank's part and its tables."""
