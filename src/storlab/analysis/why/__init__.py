"""Why two sides differ: what was watched underneath, and what of it differs, too."""
