"""Names to rows: the registry, the grammar of file names, addresses."""
