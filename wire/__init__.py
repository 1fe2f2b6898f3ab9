"""What clients and brokers agree on: errors, record batches, frames, messages and the seams.

Everything here is pure except the shells `wire.protocol.write_buffer`, `wire.protocol.rpc`,
`wire.env.tcp` and `wire.env.real_env`.
"""
