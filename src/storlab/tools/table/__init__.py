"""Importer of any table of text."""
