"""What writes parts of this project: its products are committed, and a test compares them."""
