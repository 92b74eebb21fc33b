"""Probe ``counters``."""
