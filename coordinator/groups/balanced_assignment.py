"""The balanced assignment of partitions to readers that want different topics.

Pure: no clock, no I/O.

Each reader keeps its partitions, the rest goes to the reader with fewest, and then partitions are
moved while that makes the numbers more even. A move can need several readers: `a` has too many, `c`
has too few, they have no topic in common, but `b` shares one with each; then `a` gives one to `b`
and `b` one to `c`. When no such chain is left, no other assignment is more even: an assignment
without a cost-reducing path is optimal (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite
graphs and load balancing, 2006). The shortest chain is taken first, for fewest moves.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from tidelog.coordinator.groups.partitions import Partition


def balance(
    wanted: Sequence[Sequence[bytes]],
    held: Sequence[Sequence[Partition]],
    partition_counts: Mapping[bytes, int],
) -> list[list[Partition]]:
    """Return the partitions of each reader, as evenly as possible, with few moves.

    Args:
        wanted: Topic ids that each reader wants.
        held: The former partitions of each reader; no partition twice.
        partition_counts: By topic id; other topics have no partitions.
    """
    sharing = _Sharing(wanted, partition_counts)
    sharing.keep(held)
    sharing.share_out_the_rest()
    while sharing.even_out():
        pass
    return sharing.result()


class _Sharing:
    """The assignment during its computation; readers are numbers, in order.

    Invariant: `_loads[reader]` is how many partitions stand in `_held[topic_id][reader]` of all
    topics; readers without a partition of a topic are not in its table.
    """

    def __init__(
        self, wanted: Sequence[Sequence[bytes]], partition_counts: Mapping[bytes, int]
    ) -> None:
        self._wanted = [
            [topic_id for topic_id in topic_ids if topic_id in partition_counts]
            for topic_ids in wanted
        ]
        self._readers: dict[bytes, list[int]] = {}
        for reader, topic_ids in enumerate(self._wanted):
            for topic_id in topic_ids:
                self._readers.setdefault(topic_id, []).append(reader)
        self._counts = partition_counts
        self._held: dict[bytes, dict[int, list[int]]] = {topic_id: {} for topic_id in self._readers}
        self._loads = [0] * len(wanted)

    def keep(self, held: Sequence[Sequence[Partition]]) -> None:
        """Let each reader keep the held partitions that exist and that it still wants."""
        for reader, partitions in enumerate(held):
            topic_ids = set(self._wanted[reader])
            for topic_id, number in partitions:
                if topic_id in topic_ids and number < self._counts[topic_id]:
                    self._give(topic_id, number, reader)

    def share_out_the_rest(self) -> None:
        """Assign free partitions to the readers with fewest, least wanted topics first."""
        for topic_id in sorted(self._readers, key=lambda one: (len(self._readers[one]), one)):
            taken = {number for numbers in self._held[topic_id].values() for number in numbers}
            queue = [(self._loads[reader], reader) for reader in self._readers[topic_id]]
            heapify(queue)
            for number in range(self._counts[topic_id]):
                if number not in taken:
                    _, reader = queue[0]
                    self._give(topic_id, number, reader)
                    heapreplace(queue, (self._loads[reader], reader))

    def even_out(self) -> bool:
        """Move partitions to readers with few, from readers with at least two more.

        Returns:
            Whether any partition was moved, so that another call may move more.
        """
        has_moved = False
        settled: set[int] = set()
        for reader in sorted(range(len(self._loads)), key=lambda one: (self._loads[one], one)):
            while reader not in settled:
                given_by = self._find_giver(reader, settled)
                if given_by is None:
                    break
                self._move_along(given_by)
                has_moved = True
        return has_moved

    def result(self) -> list[list[Partition]]:
        """Return the partitions of each reader, sorted."""
        assigned: list[list[Partition]] = [[] for _ in self._loads]
        for topic_id in sorted(self._held):
            for reader, numbers in self._held[topic_id].items():
                assigned[reader].extend((topic_id, number) for number in sorted(numbers))
        return assigned

    def _find_giver(self, receiver: int, settled: set[int]) -> list[tuple[int, bytes, int]] | None:
        """Find the shortest chain from a reader with at least two partitions more than `receiver`.

        Returns:
            Moves (from, topic, to), the last one to `receiver`; `None` without a chain. Then all
            reached readers are settled: `receiver` reaches all readers that they reach.
        """
        least = self._loads[receiver]
        came_from: dict[int, tuple[bytes, int]] = {}
        layer = [receiver]
        seen_readers = {receiver}
        seen_topics: set[bytes] = set()
        while layer:
            next_layer: list[int] = []
            for reader in layer:
                for topic_id in self._wanted[reader]:
                    if topic_id in seen_topics:
                        continue
                    seen_topics.add(topic_id)
                    for owner in self._held[topic_id]:
                        if owner not in seen_readers:
                            seen_readers.add(owner)
                            came_from[owner] = (topic_id, reader)
                            next_layer.append(owner)
            giver = max(next_layer, key=lambda one: (self._loads[one], -one), default=receiver)
            if self._loads[giver] >= least + 2:
                return _chain(giver, receiver, came_from)
            layer = next_layer
        settled.update(reader for reader in seen_readers if self._loads[reader] >= least)
        return None

    def _move_along(self, chain: list[tuple[int, bytes, int]]) -> None:
        for giver, topic_id, receiver in chain:
            numbers = self._held[topic_id][giver]
            number = numbers.pop()
            if not numbers:
                del self._held[topic_id][giver]
            self._loads[giver] -= 1
            self._give(topic_id, number, receiver)

    def _give(self, topic_id: bytes, number: int, reader: int) -> None:
        self._held[topic_id].setdefault(reader, []).append(number)
        self._loads[reader] += 1


def _chain(
    giver: int, receiver: int, came_from: Mapping[int, tuple[bytes, int]]
) -> list[tuple[int, bytes, int]]:
    chain: list[tuple[int, bytes, int]] = []
    while giver != receiver:
        topic_id, taker = came_from[giver]
        chain.append((giver, topic_id, taker))
        giver = taker
    return chain
