"""sysbench's text."""
