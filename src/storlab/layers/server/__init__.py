"""What serves others."""
