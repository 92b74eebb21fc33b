"""Tests of ``storlab.analysis.claims``."""
