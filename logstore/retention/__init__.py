"""Which segments retention deletes."""
