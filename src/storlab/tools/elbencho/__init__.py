"""What elbencho leaves: its results as CSV and as text, and its live statistics as CSV."""
