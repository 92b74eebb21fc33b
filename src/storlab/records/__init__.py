"""Results on disk: the run's folder, raw records of trials, and the tables derived from them."""
