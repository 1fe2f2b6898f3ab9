"""What clients and brokers agree on: errors, record batches, frames, messages and the seams.

Everything here is pure except the shells `wire.outbox`, `wire.rpc`, `wire.tcp` and `wire.real_env`.
"""
