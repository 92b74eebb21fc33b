"""``storlab import``: files of other tools become a run, which ``storlab report`` draws as any other."""
