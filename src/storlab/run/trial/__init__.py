"""One trial from its set-up to its records, and the trials of a round."""
