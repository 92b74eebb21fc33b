"""Disks of virtual machines."""
