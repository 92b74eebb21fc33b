"""``storlab plan``: what a study would do, and what it needs."""
