"""Evidence from rounds: intervals, ranks, families of comparisons, pairs, forecasts."""
