"""What a report shows, before any format draws it: pure functions from a summary and tables to sentences and tables."""
