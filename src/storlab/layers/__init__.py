"""What the load runs on: layers, which turn one resource into another, and the stacks that they make."""
