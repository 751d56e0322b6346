"""The paper's tables: their rows as training runs, several at a time, and our numbers next to the paper's."""
