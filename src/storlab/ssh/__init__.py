"""Other machines over SSH: one connection per machine, over which commands run and files are brought."""
