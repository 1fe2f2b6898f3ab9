"""The HTTP server of a broker: health checks and other read-only pages, without authentication."""
