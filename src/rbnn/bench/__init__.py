"""Our engine in a race with others, and with itself."""
