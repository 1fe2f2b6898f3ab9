"""Consumer groups: who reads which partition, how far they are, and who is alive.

Cores only. Replicated state machine: `state_machine` (with `group`, `heartbeats`,
`reconciliation`, `targets`, `commits`). Decision cores of the coordinator that leads, not
replicated: `sessions`, `rebalance_delay`, `stall_tolerant_clock`, put together by
`active_groups`; and `expiry`. Pure functions: `assignors`, `balanced_assignment`, `pattern`, `lag`,
`description`, `offset_reset`.
What all this promises: `docs/groups.md`.
"""
