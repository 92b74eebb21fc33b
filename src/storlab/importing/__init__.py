"""Results that other tools left, as runs."""
