"""The wire format of clients and brokers: errors, record batches, frames, messages, the seams.

Everything here is pure except the shells `wire.protocol.write_buffer`, `wire.protocol.rpc`,
`wire.env.tcp` and `wire.env.real_env`.
"""
