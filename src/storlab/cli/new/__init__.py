"""``storlab new``: a study to begin with, from a few answers or from a preset."""
