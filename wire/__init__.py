"""The wire format of clients and brokers: errors, record batches, frames, messages, the seams.

Everything here is pure except the shells `wire.transport.write_buffer`, `wire.transport.rpc`,
`wire.env.real.tcp` and `wire.env.real.real_env`.
"""
