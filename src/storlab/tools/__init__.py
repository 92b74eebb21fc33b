"""Other programs' output: a module or a package a tool, with format, metrics and importer; and what importers share."""
