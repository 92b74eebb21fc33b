"""Charts of sweeps: curves, heat maps, and latency against throughput."""
