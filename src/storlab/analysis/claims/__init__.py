"""Claims of a study, each with its answer."""
