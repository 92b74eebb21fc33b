"""Test suites of others: tests that pass or fail, in groups; what is asked of them, and what came of them. Pure."""
