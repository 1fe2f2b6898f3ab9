"""Layout of a queue: facts of its description that every receive needs.

Pure: no clock, no I/O. A description never changes, so they are found once for each.
"""

from functools import cached_property
from typing import final

from tidelog.client.admin.queue_metadata import setting_of
from tidelog.client.cluster.durations import seconds_of
from tidelog.wire.messages.queue_admin import QueueDescription


@final
class QueueLayout:
    """Partitions of a queue by their brokers, and settings as numbers."""

    def __init__(self, description: QueueDescription) -> None:
        """Find the brokers of the partitions."""
        self.description = description
        self.count = len(description.partitions)
        """Number of partitions."""
        self.leaderless: list[int] = []
        """Partitions without a leader."""
        found: dict[int, list[int]] = {}
        for number, partition in enumerate(description.partitions):
            if partition.leader_id is None:
                self.leaderless.append(number)
            else:
                found.setdefault(partition.leader_id, []).append(number)
        self.by_node = {node_id: found[node_id] for node_id in sorted(found)}
        """Partitions of each broker."""
        self.nodes = list(self.by_node)
        """Brokers of the partitions."""
        self._leader_count = len(found) + bool(self.leaderless) or 1

    @cached_property
    def wait_s(self) -> float:
        """Seconds that a receive waits by default.

        Raises:
            WireFormatError: The description does not have the setting.
        """
        return seconds_of(setting_of(self.description, "receive_message_wait_time_ms"))

    @cached_property
    def visibility_timeout_s(self) -> float:
        """Seconds of the visibility timeout by default.

        Raises:
            WireFormatError: The description does not have the setting.
        """
        return seconds_of(setting_of(self.description, "visibility_timeout_ms"))

    def partitions(self, turn: int) -> list[int]:
        """Return all partitions, starting with another one each time that all brokers were first.

        Args:
            turn: Number of the receive.
        """
        return _rotated(list(range(self.count)), turn // self._leader_count)

    def count_of(self, node_id: int) -> int:
        """Return the number of partitions of a broker."""
        return len(self.by_node[node_id])

    def partitions_of(self, node_id: int, turn: int) -> list[int]:
        """Return the partitions of a broker; the first one changes as in `partitions`."""
        mine = self.by_node[node_id]
        if len(mine) == 1:
            return mine
        start = turn // self._leader_count % self.count
        return [each for each in mine if each >= start] + [each for each in mine if each < start]

    def nodes_from(self, turn: int) -> list[int]:
        """Return the brokers, starting with another one each time."""
        return _rotated(self.nodes, turn)


def _rotated(numbers: list[int], by: int) -> list[int]:
    if len(numbers) <= 1:
        return numbers
    start = by % len(numbers)
    return numbers[start:] + numbers[:start]
