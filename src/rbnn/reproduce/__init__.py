"""The paper's tables: their rows as training runs, run side by side, and our numbers beside the paper's."""
