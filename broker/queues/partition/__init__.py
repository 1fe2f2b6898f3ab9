"""One hosted queue partition: its state, its journal, its source records."""
