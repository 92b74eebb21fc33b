"""Waits for the kernel's locks: what the agent prints about them, and as metrics."""
