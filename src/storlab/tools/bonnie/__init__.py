"""bonnie++'s CSV and tables."""
