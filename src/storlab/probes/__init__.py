"""What is observed while the load runs."""
