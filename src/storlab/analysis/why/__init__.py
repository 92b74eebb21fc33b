"""Why two levels differ, as far as it was watched: metrics from underneath that differ too. Evidence, never a cause."""
