"""What a network costs and what happened in a run."""
