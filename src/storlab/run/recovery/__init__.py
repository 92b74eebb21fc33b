"""What is set up is journalled first, and torn down by that journal, however a run ends."""
