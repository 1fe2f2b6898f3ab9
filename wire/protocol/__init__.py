"""Frames, connections and RPC."""
