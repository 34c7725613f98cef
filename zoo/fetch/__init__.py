"""Files of the web, fetched once and checked."""
