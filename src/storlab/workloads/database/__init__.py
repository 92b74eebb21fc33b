"""Loads of databases."""
