"""Files, directories and file systems."""
