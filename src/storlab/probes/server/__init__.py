"""What a database counts itself."""
