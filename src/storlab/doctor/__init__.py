"""What this machine can do: one small check each, gathered by ``checks.all_checks``."""
