"""Effects of factors: whose variation a metric's variation is."""
