"""Bisections for real: candidates, their builds and checks, and a journal by which one is resumed."""
