"""Training: configuration, batches, loop, checkpoints, several processes."""
