"""The shells of the protocol: RPC over a stream, and the write buffer of a stream."""
