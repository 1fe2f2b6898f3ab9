"""Mutations of what queues do by time, which tests in virtual time reveal.

Random runs are too short for the retention of a queue.
"""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import trio
from trio.testing import MockClock

from tests.broker.queues.dead_letters import test_last_delivery as last_delivery
from tests.broker.queues.partition import test_expiry as expiry_by_time
from tests.coordinator.metadata import test_queue_commands as queue_commands_tests
from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.queues.partition.fresh_letters import FreshLetters
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.retention_watch import RetentionWatch
from tidelog.coordinator.metadata import queue_commands
from tidelog.queue_layer.commands import settle
from tidelog.queue_layer.state.message_runs import MessageRuns
from tidelog.queue_layer.state.message_state import MessageStatus
from tidelog.queue_layer.state.unreceived import UnreceivedRecords


async def _look_never(self: RetentionWatch, nursery: trio.Nursery) -> None:
    del self, nursery
    await trio.sleep_forever()


async def _not_before_a_receive(self: HostedPartition) -> int:
    return self._context.env.clock.now_ms() + 1_000


def _without_times(*args: object) -> Iterator[tuple[int, int, int]]:
    del args
    return iter(())


def _check_nothing(*args: object) -> None:
    del args


def _is_never_exhausted(self: MessageRuns, status: MessageStatus) -> bool:
    del self, status
    return False


def _has_no_fresh_letters(self: FreshLetters) -> bool:
    del self
    return False


async def _wait_for_nothing(self: HostedPartition) -> None:
    del self


def _in_virtual_time(test: Callable[..., Any], **parameters: object) -> Callable[[], None]:
    def run() -> None:
        clock = MockClock()
        trio.run(partial(test, clock, **parameters), clock=clock)

    return run


_released_dead = settle._released


def _released_for_a_retry(*args: Any, **more: Any) -> Any:  # noqa: ANN401 (as `_released`)
    state, config, *rest = args
    runs = state.runs
    limit, runs._max_deliveries = runs._max_deliveries, 1 << 62
    try:
        return _released_dead(state, config, *rest, **more)
    finally:
        runs._max_deliveries = limit


BY_TIME: list[tuple[Mutation, Callable[[], None]]] = [
    (
        Mutation(
            "expired-at-the-next-receive",
            "a message expires only when a request loads its queue",
            (RetentionWatch, "_run_looks", _look_never),
        ),
        _in_virtual_time(
            expiry_by_time.test_expired_messages_go_by_time_without_a_request, is_loaded=False
        ),
    ),
    (
        Mutation(
            "expired-messages-counted",
            "counts and peeks have messages that are too old",
            (HostedPartition, "expire_due", _not_before_a_receive),
        ),
        _in_virtual_time(expiry_by_time.test_counts_ages_and_peeks_have_no_expired_messages),
    ),
    (
        Mutation(
            "delays-expire",
            "a delayed message expires as if it had been visible since its send",
            (UnreceivedRecords, "timed", _without_times),
        ),
        _in_virtual_time(
            expiry_by_time.test_a_delayed_message_expires_by_time_from_its_delivery_on
        ),
    ),
    (
        Mutation(
            "released-after-the-last-delivery",
            "a release after the last delivery waits for a retry that does not come",
            (settle, "_released", _released_for_a_retry),
        ),
        _in_virtual_time(
            last_delivery.test_a_poll_of_the_dead_letter_queue_after_a_release_finds_the_message,
            retry_backoff="10min",
        ),
    ),
    (
        Mutation(
            "last-deliveries-forgotten",
            "the journal does not say that last deliveries have to end",
            (MessageRuns, "is_exhausted", _is_never_exhausted),
        ),
        _in_virtual_time(last_delivery.test_the_next_leader_ends_last_deliveries_without_a_request),
    ),
    (
        Mutation(
            "in-neither-queue",
            "an answer finds a message dead before the dead-letter queue has it",
            (FreshLetters, "are_on_the_way", property(_has_no_fresh_letters)),
            (HostedPartition, "wait_moved", _wait_for_nothing),
        ),
        _in_virtual_time(last_delivery.test_answers_wait_for_the_move_of_a_message_that_just_died),
    ),
    (
        Mutation(
            "retention-beyond-the-topic",
            "a queue promises to keep messages for longer than its topic",
            (queue_commands, "check_retention", _check_nothing),
        ),
        partial(
            queue_commands_tests.test_a_queue_cannot_promise_more_than_its_topic_keeps,
            {"delivery_delay_ms": "2d"},
            "has delivery_delay_ms 2d",
        ),
    ),
]
"""Mutations, each with the test that reveals it."""
