"""The program that looks: it needs Python's standard library alone, and runs on the node (``python3 FILE.pyz``)."""
