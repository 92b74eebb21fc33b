"""Workload ``bonnie``: Bonnie++, as it stands."""
