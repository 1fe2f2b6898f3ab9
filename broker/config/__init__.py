"""Settings of a broker: names, defaults, sources, and changes at run time."""
