"""The state that a queue partition's journal determines."""
