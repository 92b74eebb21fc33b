"""Directories of one node that others mount over the network: what serves them, and the crossings that mount them."""
