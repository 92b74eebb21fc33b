"""Workload ``files``: many small files."""
