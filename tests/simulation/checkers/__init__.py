"""What must hold of a life, as named classes with exact definitions."""
