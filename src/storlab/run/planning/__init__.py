"""What a run would do, decided before anything runs: cells, order, times, what each node needs."""
