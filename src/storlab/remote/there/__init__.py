"""The part that runs on the other machine. It loads nothing but Python's own library, so that it starts at once."""
