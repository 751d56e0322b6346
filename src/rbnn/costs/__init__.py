"""What a network costs: bytes, operations, time."""
