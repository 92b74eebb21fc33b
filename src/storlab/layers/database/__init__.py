"""Databases as layers, the data sets that they start from, and how clients reach them."""
