"""What pgbench prints, and its log of transactions."""
