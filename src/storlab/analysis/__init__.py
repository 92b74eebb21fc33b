"""Statistics: pure functions over data frames. Nothing here runs, reads or writes anything.

``summarise`` is the way in, from a run's tables to a ``Summary``; ``docs/explanation/statistics.md`` says why."""
