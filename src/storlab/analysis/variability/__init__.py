"""How much samples vary within trials."""
