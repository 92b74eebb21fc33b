"""Requests of a virtual machine to the servers of its shares, counted by its kernel."""
