"""Is what Storlab says true? False verdicts, coverage and time to a verdict, by simulation with recorded seeds."""
