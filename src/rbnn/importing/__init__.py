"""Trained networks from other sources as torch networks."""
