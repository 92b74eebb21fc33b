"""Storlab's own speed, beside its peers': each module is a program, ``python -m benchmarks`` runs them all."""
