"""The calls of the client for asyncio; written by `tools.face_calls`."""
