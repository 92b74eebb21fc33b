"""blkalgn's JSON and tables."""
