"""A page that shows what happened in training runs."""
