"""Reports of runs of suites: what is shown, and how in each format."""
