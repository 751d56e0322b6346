"""A packed network in the words of other engines and formats: no torch."""
