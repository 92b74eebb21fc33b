"""Running a suite of tests in guests that may be lost: a queue of groups, each guest's life, one attempt at a time."""
