"""Benchmarks of our engine: against other engines, and of its kernels."""
