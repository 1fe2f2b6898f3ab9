"""Consumer groups: members, their partitions and sessions, and committed offsets.

Cores only. Replicated state machine: `state_machine` (with `group`, `heartbeats`,
`reconciliation`, `targets`, `commits`). Decision cores of the coordinator that leads, not
replicated: `sessions`, `rebalance_delay`, `stall_tolerant_clock`, put together by
`group_manager`; and `expiry`. Pure functions: `assignors`, `balanced_assignment`, `pattern`, `lag`,
`description`, `reset_offsets`.
The guarantees are in `docs/groups.md`.
"""
