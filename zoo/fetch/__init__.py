"""Files of the web: fetched once, checked, and kept in the cache."""
