"""The executor: order, start barrier, journal, resume, teardown."""
