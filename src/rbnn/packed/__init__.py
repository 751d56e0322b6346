"""Packed networks: operations and their rules, the file, the oracle, the engine.  NumPy, no torch."""
