"""Results that other tools made, as runs: one module a tool. A new one is a module and a line in ``registry.py``."""
