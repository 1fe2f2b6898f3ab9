"""FIFO order: each group in the order of the log, and no group waits for another.

Pure: no clock, no I/O.

**The rule.** Of the messages of a group that are not done, the longest prefix of visible ones can
be delivered. Messages after the first invisible one are blocked. A receive takes as many as it can
from one group and continues with others; groups take turns: a group that was just served, or is
visible again, goes behind the others.

**A receive looks at** the groups in the ring, whose first message is visible. A group whose first
message is invisible is in no ring, and costs nothing until the state of that message changes. So
neither a million waiting groups nor a group of a million blocked messages costs a receive anything,
and the cost of a message is constant:

    ring          group 7 -> group 3 -> group 9          whose head is visible
    group 7       head 100, tail 3070, 4 messages        48 bytes; about 55 more to find it by key
    links         100 -> 101 -> 2044 -> 3070             8 bytes a message

**The link of a message** has in 63 bits the distance to the next message of its group (0 without
one), its group, and its state. With that, every change of an offset finds its group, and the head
after a done one is found, in constant time. Walking past done messages in the middle of a group
moves the link of the message before them, so that they are passed once and not by every receive.
Only done messages are passed: a dead letter that cannot be moved returns to its place.

**Below the cursor** of a FIFO queue are messages that were never received: those of blocked groups,
passed over when others were served. So a message below the cursor that is not in flight need not be
done. The queue state keeps skipped messages as runs with their own status (`SKIPPED`), so that
every message below the cursor and outside of runs is done, as in any queue, and snapshots, counts
and purges need no other rule. A blocked backlog is one run. In the worst case, with messages of
others between all of its own, it is one run for each of them: as many as the intervals of a set of
done messages. (A bit for each offset would be smaller then, and a second truth beside the runs.)

**Groups are identified by a 16-byte hash of their keys**, so that long keys cost no more. If ever
two groups had the same hash, they would be served as one group: in order, one at a time, nothing
lost and nothing delivered twice.

**A failover** needs all records from the low-water mark on, but no pause. They arrive in the order
of the log, so the first message of a group is its head, and messages that were not read yet are not
delivered yet, as if they had not been sent. A queue with a long backlog serves from the first
records on that were read.
"""

from array import array
from collections.abc import Generator, Iterator, Sequence
from hashlib import blake2b
from heapq import nlargest
from typing import Final, final

from tidelog.queue_layer.collections.group_links import (
    BLOCK_OFFSETS,
    GroupLinks,
    InMemoryGroupLinks,
)
from tidelog.queue_layer.collections.hash_table import KEY_SIZE, HashTable
from tidelog.queue_layer.collections.index_list import IndexList
from tidelog.queue_layer.ordering.delivery_order import (
    Candidates,
    GroupSize,
    RecordFields,
    ranked,
)

_VISIBLE: Final = 0
_INVISIBLE: Final = 1
_DEAD: Final = 2
_DONE: Final = 3
"""Also the state of unknown offsets: `NO_LINK` has these bits."""
_STATE: Final = 3
_GROUP_SHIFT: Final = 2
_GROUP: Final = (1 << 28) - 1
"""Maximum number of groups."""
_NEXT_SHIFT: Final = 30
_DISTANCE_MAX: Final = (1 << 33) - 1
"""Maximum distance from a message to the next of its group, in offsets."""
_BELOW_NEXT: Final = (1 << _NEXT_SHIFT) - 1

_NONE: Final = -1
_NO_KEY: Final = -2
"""Tail of a message without a key, which is its whole group."""
_GROUPS_AT_ONCE: Final = 10_000
"""Groups that are compared in one step: that takes a millisecond."""


@final
class FifoOrder:
    """Messages of one partition by groups.

    Invariants: a group exists while it has messages that are not done. Its head is its first
    message that is neither done nor dead, if there is one; following links from a message meets all
    later ones of its group that are not done. A group is in the ring while its head is visible.
    """

    needs_all_records = True

    def __init__(self, start: int, links: GroupLinks | None = None) -> None:
        """Start at an offset; `links` may store the numbers elsewhere."""
        self._end = start
        self._links: GroupLinks = InMemoryGroupLinks() if links is None else links
        self._groups = HashTable()
        """Number of each group with a key, by the hash of the key."""
        self._heads = array("q", [_NONE])
        self._tails = array("q", [_NONE])
        """Last message of a group, done or not: it gets the link to the next one."""
        self._sizes = array("q", [0])
        """Messages of a group that are neither done nor dead."""
        self._hashes = bytearray(KEY_SIZE)
        self._free: list[int] = []
        """Numbers of removed groups, for reuse."""
        self._ring = IndexList()
        self._invisible_counts: dict[int, int] = {}
        """Invisible messages of the groups that have any."""
        self._dead_counts: dict[int, int] = {}
        """Dead letters of the groups that have any."""
        self._left_in_block: dict[int, int] = {}
        """Messages of each block of links that are not done."""
        self._first_block = start // BLOCK_OFFSETS

    def on_records(self, first: int, end: int, fields: Sequence[RecordFields] | None) -> None:
        """Add records."""
        assert first == self._end, "records come in the order of the log, each once"
        for offset in range(first, end):
            self._on_record(offset, None if fields is None else fields[offset - first].group)
        self._end = end
        self._drop_blocks()

    def on_invisible(self, first: int, end: int, *, is_in_flight: bool) -> None:
        """Make messages invisible: in flight, or delayed."""
        del is_in_flight
        for offset in range(first, end):
            self._became(offset, _INVISIBLE)

    def on_visible(self, first: int, end: int, since_ms: int) -> None:
        """Make messages visible again, each in its place in its group."""
        del since_ms
        for offset in range(first, end):
            self._became(offset, _VISIBLE)

    def on_dead_lettered(self, first: int, end: int) -> None:
        """Make messages dead letters, which block their groups no more."""
        for offset in range(first, end):
            self._became(offset, _DEAD)

    def on_deleted(self, first: int, end: int) -> None:
        """Remove messages, which block their groups no more."""
        for offset in range(first, end):
            self._became(offset, _DONE)
        self._drop_blocks()

    def candidates(self, limit: int, turn: int) -> Iterator[Candidates]:
        """Yield deliverable messages: all of one group, then those of the next.

        The rank of a group is its turn.
        """
        del turn  # A group that is served leaves the ring: that is alternation enough.
        for rank, group in enumerate(self._ring):
            yield from ranked(self._beginning(group, limit), rank)

    def blocked(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the visible messages of a range behind an invisible one of their group."""
        barriers: dict[int, int | None] = {}
        since: int | None = None
        for offset in range(first, end):
            link = self._links.get(offset)
            is_blocked = False
            if link & _STATE == _VISIBLE:
                group = link >> _GROUP_SHIFT & _GROUP
                if group not in barriers:
                    barriers[group] = self._first_invisible(group)
                barrier = barriers[group]
                is_blocked = barrier is not None and offset > barrier
            if is_blocked and since is None:
                since = offset
            elif not is_blocked and since is not None:
                yield since, offset
                since = None
        if since is not None:
            yield since, end

    def largest_groups(self, limit: int) -> Generator[None, None, list[GroupSize]]:
        """Return the groups with the most messages, without their dead letters."""
        largest: list[tuple[int, int]] = []
        for start in range(0, len(self._sizes), _GROUPS_AT_ONCE):
            sizes = self._sizes[start : start + _GROUPS_AT_ONCE]
            if len(largest) < limit or max(sizes) > largest[-1][0]:
                groups = range(start, start + len(sizes))
                largest = nlargest(limit, [*largest, *zip(sizes, groups, strict=True)])
            yield
        return [
            GroupSize(self._sizes[group], self._invisible_counts.get(group, 0), self._heads[group])
            for _, group in largest
            if self._sizes[group]
        ]

    @property
    def group_count(self) -> int:
        """Number of groups with messages that are not done."""
        return len(self._heads) - 1 - len(self._free)

    @property
    def size_bytes(self) -> int:
        """Memory of the groups in bytes, without the links of messages."""
        return len(self._heads) * (KEY_SIZE + 32) + self._groups.size_bytes

    def _on_record(self, offset: int, key: bytes | None) -> None:
        if key is None:
            group = self._new_group(offset, _NO_KEY)
        else:
            hashed = blake2b(key, digest_size=KEY_SIZE).digest()
            found = self._groups.get(hashed)
            if found is None:
                group = self._new_group(offset, offset)
                self._groups.put(hashed, group)
                self._hashes[group * KEY_SIZE : (group + 1) * KEY_SIZE] = hashed
            else:
                group = found
                self._link(self._tails[group], offset)
                self._tails[group] = offset
                if self._heads[group] == _NONE:
                    self._heads[group] = offset
                    self._ring.add(group)
        self._sizes[group] += 1
        self._links.put(offset, group << _GROUP_SHIFT | _VISIBLE)
        block = offset // BLOCK_OFFSETS
        self._left_in_block[block] = self._left_in_block.get(block, 0) + 1

    def _new_group(self, head: int, tail: int) -> int:
        if self._free:
            group = self._free.pop()
            self._heads[group] = head
            self._tails[group] = tail
        else:
            group = len(self._heads)
            assert group <= _GROUP, "so many groups are not supported"
            self._heads.append(head)
            self._tails.append(tail)
            self._sizes.append(0)
            self._hashes.extend(bytes(KEY_SIZE))
        self._ring.add(group)
        return group

    def _link(self, offset: int, following: int) -> None:
        """Set the message that follows another one in its group."""
        distance = following - offset
        assert distance <= _DISTANCE_MAX, "so many messages between two of a group: not supported"
        link = self._links.get(offset)
        self._links.put(offset, distance << _NEXT_SHIFT | link & _BELOW_NEXT)

    def _became(self, offset: int, state: int) -> None:
        """Change the state of a message, and update its group."""
        link = self._links.get(offset)
        before = link & _STATE
        if before == _DONE:
            return
        group = link >> _GROUP_SHIFT & _GROUP
        if state != before:
            link = link & ~_STATE | state
            self._links.put(offset, link)
            self._count(group, before, -1)
            self._count(group, state, 1)
            self._sizes[group] += (state < _DEAD) - (before < _DEAD)
        head = self._heads[group]
        if state >= _DEAD:
            if offset == head:
                self._advance(group, offset, link)
            if state == _DONE:
                self._left_in_block[offset // BLOCK_OFFSETS] -= 1
            self._forget_if_empty(group)
        elif offset <= head or head == _NONE:
            # The head itself, or a dead letter from before it.
            self._heads[group] = offset
            self._take_or_leave_turn(group, state)

    def _count(self, group: int, state: int, change: int) -> None:
        """Count invisible and dead messages, which few groups have."""
        if state == _INVISIBLE:
            counts = self._invisible_counts
        elif state == _DEAD:
            counts = self._dead_counts
        else:
            return
        count = counts.get(group, 0) + change
        if count:
            counts[group] = count
        else:
            counts.pop(group, None)

    def _advance(self, group: int, offset: int, link: int) -> None:
        """Find the next head of a group whose old head is done or dead."""
        at, found = self._following(offset, link)
        while found & _STATE == _DEAD:
            at, found = self._following(at, found)
        self._heads[group] = _NONE if found & _STATE == _DONE else at
        self._take_or_leave_turn(group, found & _STATE)

    def _take_or_leave_turn(self, group: int, head_state: int) -> None:
        """Put a group into the ring or remove it; a group in the ring keeps its place."""
        if head_state != _VISIBLE:
            self._ring.discard(group)
        elif group not in self._ring:
            self._ring.add(group)

    def _following(self, offset: int, link: int) -> tuple[int, int]:
        """Return the next message of a group that is not done, and its link.

        Without one, the link is that of a done message. Done messages are passed only once.
        """
        distance = link >> _NEXT_SHIFT
        if not distance:
            return offset, _DONE
        at = offset + distance
        found = self._links.get(at)
        if found & _STATE != _DONE:
            return at, found
        while found & _STATE == _DONE and found >> _NEXT_SHIFT:
            at += found >> _NEXT_SHIFT
            found = self._links.get(at)
        if at != offset + distance:
            self._link(offset, at)
        return at, found

    def _forget_if_empty(self, group: int) -> None:
        if self._heads[group] != _NONE or group in self._dead_counts:
            return
        if self._tails[group] != _NO_KEY:
            self._groups.remove(bytes(self._hashes[group * KEY_SIZE : (group + 1) * KEY_SIZE]))
        self._free.append(group)

    def _beginning(self, group: int, count_max: int) -> Iterator[tuple[int, int]]:
        """Yield the deliverable messages of a group, in ranges of at most `count_max`."""
        first = at = self._heads[group]
        link = self._links.get(at)
        while True:
            following, link = self._following(at, link)
            while link & _STATE == _DEAD:
                following, link = self._following(following, link)
            is_more = link & _STATE == _VISIBLE
            if not is_more or following != at + 1 or following - first == count_max:
                yield first, at + 1
                first = following
            if not is_more:
                return
            at = following

    def _first_invisible(self, group: int) -> int | None:
        """Return the first invisible message of a group."""
        if group not in self._invisible_counts:
            return None
        at = self._heads[group]
        link = self._links.get(at)
        while link & _STATE != _INVISIBLE:
            at, link = self._following(at, link)
        return at

    def _drop_blocks(self) -> None:
        """Drop the links of blocks whose messages are done, and so are all before them."""
        block = self._first_block
        while (block + 1) * BLOCK_OFFSETS <= self._end and not self._left_in_block.get(block):
            self._left_in_block.pop(block, None)
            block += 1
        if block != self._first_block:
            self._first_block = block
            self._links.drop_below(block * BLOCK_OFFSETS)
