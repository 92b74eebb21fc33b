"""Studies from a few answers: what `storlab new` asks, and the text that comes of it."""
