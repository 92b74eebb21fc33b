"""What TCP connections did: as the agent prints it, added up over a window of time, and as metrics."""
