"""What must hold of a run, as named classes with exact definitions."""
