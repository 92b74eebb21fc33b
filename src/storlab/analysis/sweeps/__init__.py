"""What is said of sweeps, factors whose levels are numbers: how well each point is known, where the curve bends."""
