"""What other tools write, parsed: text in, values out. Pure, and below workloads, probes and importers."""
