"""Setting up a cell: which parts stand on which, how long each stays, and how all are torn down again."""
