"""Block devices of the machine."""
