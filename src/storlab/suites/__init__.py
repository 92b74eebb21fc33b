"""Test suites of others: tests that pass or fail, in groups; how they are run, and what came of them."""
