"""The environment seam: clock, network, randomness, threads."""
