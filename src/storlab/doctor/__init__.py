"""What this machine can do: a small check each, gathered by ``examination.examine``. Changes nothing."""
