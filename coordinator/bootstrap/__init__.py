"""Opening a node: create a cluster, join one, or continue."""
