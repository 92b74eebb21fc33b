"""Workload ``fio``."""
