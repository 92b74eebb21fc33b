"""``storlab trace``: block I/O as the kernel sees it, live, as tables, as files, or around a command."""
