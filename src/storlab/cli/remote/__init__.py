"""Commands that run on another machine, and are shown here."""
