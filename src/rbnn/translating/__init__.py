"""Packed networks in other engines and formats.  No torch."""
