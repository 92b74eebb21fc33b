"""Crossings over the network: disks of other nodes by NBD, iSCSI, NVMe/TCP and AoE, and what loads reach themselves."""
