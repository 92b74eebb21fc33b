"""What to measure: the study file's schema, its loading, and the cells that its factors make."""
