"""The commands `tidelog admin`: the way back in after a lock-out."""
