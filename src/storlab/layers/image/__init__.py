"""Disk images."""
