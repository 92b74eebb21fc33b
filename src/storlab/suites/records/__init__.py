"""A run of a suite in its folder, and the results of many runs."""
