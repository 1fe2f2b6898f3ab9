"""The server: the trio process in which the parts are put together."""
