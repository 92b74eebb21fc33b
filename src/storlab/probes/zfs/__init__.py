"""Probe ``zfs``: what ZFS counts of itself, and how its disks' queues fill."""
