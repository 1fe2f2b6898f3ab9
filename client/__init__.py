"""Producers, consumers and administration for programs.

Cores decide (`accumulator`, `partition_queue`, `producer_batch`, `partitioner`, `metadata`,
`subscription`, `group_membership`, `backoff`), shells move bytes and time (`cluster`, `producer`,
`consumer`, `admin`, `client`, `blocking`). Programs import `tidelog`, not this package.
"""
