"""Packed networks: operations and their rules, the file, the oracle, the engine at work.  NumPy, no torch."""
