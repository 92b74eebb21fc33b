"""Probe ``locks``: waits for the kernel's locks."""
