"""Frames, the codec of messages, and the state of a connection."""
