"""Pages for people: results with their bench and charts, in one file that works without network."""
