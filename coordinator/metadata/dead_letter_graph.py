"""The dead-letter graph: its edges go from queues to their dead-letter queues.

Pure: no clock, no I/O.
"""

from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.errors import InvalidConfigError, UnknownQueueError


def check_dead_letter_queue(
    state: ClusterState, queue: str, source_topic_id: bytes, *, name: str, is_fifo: bool
) -> None:
    """Check that a queue may use another one as its dead-letter queue.

    The graph of topics must be acyclic: every queue on a topic sees all of its records. The queue
    itself need not exist yet.

    Args:
        state: The state of the cluster.
        queue: Name of the source queue.
        source_topic_id: Topic id of the source queue.
        name: Name of the dead-letter queue.
        is_fifo: Whether the source queue is a FIFO queue.

    Raises:
        UnknownQueueError: The dead-letter queue does not exist.
        InvalidConfigError: The dead-letter queue is of another kind, or closes a cycle.
    """
    if not state.catalog.has_queue(name):
        raise UnknownQueueError(
            f"there is no dead-letter queue {name!r}; create it first (`tidelog"
            f" queue create {name}`)"
        )
    target = state.catalog.journal(name)
    assert target.queue is not None
    if target.queue.is_fifo != is_fifo:
        kinds = ("a FIFO queue", "none") if is_fifo else ("no FIFO queue", "one")
        raise InvalidConfigError(
            f"{queue!r} is {kinds[0]} and {name!r} is {kinds[1]}; a dead-letter queue must be of"
            " the same kind"
        )
    way = _dead_letter_path(state, target.source_id, source_topic_id)
    if way is not None:
        stops = " to ".join(repr(stop) for stop in (name, *way))
        raise InvalidConfigError(
            f"dead letters of {queue!r} would come back: from {stops}, which is on the same topic"
        )


def _dead_letter_path(state: ClusterState, start: bytes, end: bytes) -> list[str] | None:
    """Return the queues on the path of dead letters from one topic to another.

    `None` without a path; empty if it is the same topic.
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
