"""What TCP connections did: the agent's counts beside packets that were captured."""
