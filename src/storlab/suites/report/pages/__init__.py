"""Reports on several runs of a suite: what is said, as tables, and how in each format."""
