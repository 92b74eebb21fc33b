"""Waits for locks of the kernel: what the agent prints, and what is said of callers over a run."""
