"""Whole commands on another machine: Storlab brought there, a job started there, its events and records fetched."""
