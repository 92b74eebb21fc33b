"""ZFS: pools, datasets and volumes."""
