"""Samples of what CPUs do, with their stacks: as the agent prints them, as shares of functions, and folded."""
