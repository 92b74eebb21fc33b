"""Probe ``alignment``."""
