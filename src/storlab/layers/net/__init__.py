"""Crossings over the network: what another node serves."""
