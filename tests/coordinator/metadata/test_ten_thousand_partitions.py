"""Costs of a large cluster. The bounds are generous: they catch another order of growth."""

import gc
import time
import tracemalloc

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.controller.log_entries import decode_entry, encode_entry
from tidelog.coordinator.metadata.commands import (
    Command,
    CommandOutcome,
    CreateReplicatedTopic,
    FenceBroker,
)
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine

PARTITIONS = 10_000
TOPIC_ID = b"0123456789abcdef"
CREATE = CreateReplicatedTopic("orders", TOPIC_ID, PARTITIONS, {})


def carry_out(machine: MetadataStateMachine, command: Command) -> CommandOutcome:
    """Apply a command on another node, by its encoded records."""
    outcome = machine.handle(command, now_ms=0)
    for record in decode_entry(encode_entry(outcome.records))[0]:
        machine.apply(record)
    return outcome


def test_a_partition_takes_little_memory_and_less_in_a_snapshot() -> None:
    machine = Cluster(1, 2, 3).machine
    gc.collect()
    tracemalloc.start()
    try:
        carry_out(machine, CREATE)
        gc.collect()
        created_bytes, _ = tracemalloc.get_traced_memory()
        carry_out(machine, FenceBroker(1, 1))
        gc.collect()
        fenced_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert created_bytes / PARTITIONS < 160, "about 105 when this was written"
    assert fenced_bytes / PARTITIONS < 220, "about 150 when this was written"
    assert len(machine.snapshot()) / PARTITIONS < 40, "about 20 when this was written"


def test_a_third_of_all_leaders_move_by_one_command_in_two_records() -> None:
    machine = Cluster(1, 2, 3).machine
    carry_out(machine, CREATE)
    assert machine.state.index.load(1).leader_count >= PARTITIONS // 3
    began_s = time.process_time()

    outcome = carry_out(machine, FenceBroker(1, 1))

    took_s = time.process_time() - began_s
    assert machine.state.index.load(1).leader_count == 0
    assert len(outcome.records) == 2
    assert len(encode_entry(outcome.records)) < 50 * PARTITIONS
    assert took_s < 10, "about 0.07 when this was written, 2 with a record of coverage"
