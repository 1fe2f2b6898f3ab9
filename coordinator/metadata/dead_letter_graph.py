"""The dead-letter graph: from queues to the queues that take their dead letters.

Pure: no clock, no I/O.
"""

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.errors import InvalidConfigError, UnknownQueueError


def dead_letter_source_queues(state: ClusterState) -> dict[str, list[Topic]]:
    """Return, for each dead-letter queue, the journals of the queues whose it is, by name."""
    users: dict[str, list[Topic]] = {}
    for journal in state.catalog.journals:
        config = journal.queue_config
        if config is not None and config.dead_letter_queue is not None:
            users.setdefault(config.dead_letter_queue, []).append(journal)
    return users


def check_dead_letter_queue(
    state: ClusterState, queue: str, source_topic_id: bytes, *, name: str, is_fifo: bool
) -> None:
    """Check that a queue's dead letters may go to another one.

    They may not come back: every queue on a topic sees all of its records, so what counts is from
    topic to topic. The queue itself need not be there yet.

    Args:
        state: What there is.
        queue: Whose dead letters.
        source_topic_id: Of its topic.
        name: Of the dead-letter queue.
        is_fifo: Whether the queue is one.

    Raises:
        UnknownQueueError: There is no such dead-letter queue.
        InvalidConfigError: It is of another kind, or its messages come back.
    """
    if not state.catalog.has_queue(name):
        raise UnknownQueueError(
            f"there is no queue {name!r} that could take dead letters; create it first (`tidelog"
            f" queue create {name}`)"
        )
    target = state.catalog.journal(name)
    assert target.queue is not None
    if target.queue.is_fifo != is_fifo:
        kinds = ("a FIFO queue", "none") if is_fifo else ("no FIFO queue", "one")
        raise InvalidConfigError(
            f"{queue!r} is {kinds[0]} and {name!r} is {kinds[1]}; a dead-letter queue is of the"
            " same kind"
        )
    way = _dead_letter_path(state, target.source_id, source_topic_id)
    if way is not None:
        stops = " to ".join(repr(stop) for stop in (name, *way))
        raise InvalidConfigError(
            f"dead letters of {queue!r} would come back: from {stops}, which is on the same topic"
        )


def _dead_letter_path(state: ClusterState, start: bytes, end: bytes) -> list[str] | None:
    """Return the queues through which dead letters get from one topic to another.

    `None` if they do not; empty if it is the same topic.
    """
    ways: dict[bytes, list[str]] = {start: []}
    pending = [start]
    while pending:
        topic_id = pending.pop(0)
        if topic_id == end:
            return ways[topic_id]
        for journal in state.catalog.journals_of(topic_id):
            assert journal.queue_config is not None
            name = journal.queue_config.dead_letter_queue
            target = None if name is None else state.catalog.journal(name).source_id
            if name is not None and target is not None and target not in ways:
                ways[target] = [*ways[topic_id], name]
                pending.append(target)
    return None
