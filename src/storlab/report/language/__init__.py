"""What a report says: the only sentences about findings, and the only rounding of numbers for people."""
