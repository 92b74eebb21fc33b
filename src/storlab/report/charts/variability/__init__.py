"""How much the samples within trials vary: over time, as distributions, and of one level against another."""
