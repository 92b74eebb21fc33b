"""Probe ``tcp``."""
