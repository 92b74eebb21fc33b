"""``storlab suite``: suites of tests from others, run in guests."""
