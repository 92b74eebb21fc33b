"""Metrics and rows that no single file of a trial holds: what follows from several of its parts together."""
