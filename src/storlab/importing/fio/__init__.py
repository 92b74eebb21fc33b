"""Importer of fio's results."""
