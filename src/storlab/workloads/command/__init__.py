"""Workload ``command``: any program."""
