"""Statistics: pure functions over data frames. Nothing here runs, reads or writes anything."""
