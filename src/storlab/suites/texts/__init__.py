"""What programs of suites print, and KTAP: read, and printed the same."""
