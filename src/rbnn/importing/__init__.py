"""Other people's checkpoints as ours."""
