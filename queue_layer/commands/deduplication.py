"""Deduplication window of a FIFO queue: an id that comes again is a duplicate of a message.

Pure: no clock, no I/O.

The window is derived from the log, not from a queue: it can always be rebuilt from the part of the
log that is as young as the window, by reading those records in order. So it is in no journal and in
no snapshot, and it survives the receive and delete of its messages. (If the same id was appended
twice within one window without a check, and only the second is young enough to be read again, the
second begins a window. A send with a check never causes that.)

The window of an id begins with the message that was accepted and lasts `window_ms`. Duplicates do
not make it longer: a sender that repeats itself for an hour gets one message every window, and a
sender that waits for the end of the window is not delayed by others.

Ids are kept in generations, each as long as the window; a generation is dropped as a whole when all
of its ids are older than the window, so old ids are never searched for. There are two generations
as a rule. An id costs 50 to 65 bytes (`queue_layer.collections.hash_table`), where a `dict` of
hashes to offsets and times takes 235. A generation is kept until its last id is too old, so memory
is that of the ids of up to two windows.
"""

from collections import deque
from hashlib import blake2b, sha256
from typing import Final, final

from tidelog.queue_layer.collections.hash_table import KEY_SIZE, HashTable
from tidelog.queue_layer.collections.queue_clock import QueueClock
from tidelog.wire.config.queue_config import DEDUPLICATION_WINDOW_MS_MAX, DeduplicationScope

_TIME_BITS = 30
"""Enough for the longest window, in milliseconds."""
_TIME_MASK = (1 << _TIME_BITS) - 1
IDS_MAX: Final = 4_000_000
"""Maximum ids of one partition, up to 260 MB of them; beyond it a send is refused rather than
risking a duplicate."""
GENERATION_OFFSETS_MAX: Final = 1 << (63 - _TIME_BITS)
"""Maximum offsets that a generation spans."""
assert 1 << _TIME_BITS > DEDUPLICATION_WINDOW_MS_MAX


@final
class DeduplicationRule:
    """Rule by which messages are duplicates of each other.

    The scope of a queue never changes: ids would be looked up under other keys than those they are
    stored under. `is_content_based` may change, because it only matters for new messages.
    """

    __slots__ = ("is_content_based", "scope")

    def __init__(self, scope: DeduplicationScope, *, is_content_based: bool) -> None:
        """Compare messages by their ids, or else, if `is_content_based`, by their values."""
        self.scope = scope
        self.is_content_based = is_content_based

    def key_of(self, group: bytes | None, explicit_id: bytes | None, value: bytes) -> bytes | None:
        """Return the key of a message, 16 bytes; `None` if it has neither an id nor content rules.

        An explicit id wins over the content. The id of a content is its SHA-256 in hexadecimal
        digits, so that a sender that computes it itself gets the same key. Headers do not count.
        With the scope of a group, messages without a group share one.
        """
        if explicit_id is None:
            if not self.is_content_based:
                return None
            explicit_id = sha256(value).hexdigest().encode()
        if self.scope is DeduplicationScope.QUEUE or group is None:
            prefix = b"\x00"
        else:
            # The length comes before the group, or (b"ab", b"c") would be (b"a", b"bc").
            prefix = b"\x01" + len(group).to_bytes(8, "little") + group
        return blake2b(prefix + explicit_id, digest_size=KEY_SIZE).digest()


@final
class _Generation:
    """Ids that were accepted within the length of one window."""

    __slots__ = ("base_offset", "ids", "last_ms", "start_ms")

    def __init__(self, base_offset: int, start_ms: int) -> None:
        self.base_offset = base_offset
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.ids = HashTable()

    def add(self, key: bytes, offset: int, accepted_ms: int) -> None:
        since = accepted_ms - self.start_ms
        self.last_ms = accepted_ms
        self.ids.put(key, (offset - self.base_offset) << _TIME_BITS | since)

    def find(self, key: bytes) -> tuple[int, int] | None:
        """Return the offset of the message and the time of its acceptance."""
        found = self.ids.get(key)
        if found is None:
            return None
        return self.base_offset + (found >> _TIME_BITS), self.start_ms + (found & _TIME_MASK)


@final
class DeduplicationWindow:
    """Ids of one partition that were accepted within the window.

    Time never runs backwards: see `queue_layer.collections.queue_clock`.

    Invariant: of the messages whose ids are found here, no two have the same id.
    """

    __slots__ = ("_clock", "_floor", "_generations", "_now_ms", "_window_ms")

    def __init__(self, window_ms: int) -> None:
        """Start without ids."""
        assert 0 < window_ms <= DEDUPLICATION_WINDOW_MS_MAX, window_ms
        self._window_ms = window_ms
        self._floor = 0
        self._now_ms = 0
        self._clock = QueueClock()
        self._generations: deque[_Generation] = deque()
        """Generations, the oldest first."""

    def __len__(self) -> int:
        """Return the number of stored ids; some of them may be too old to count."""
        return sum(len(generation.ids) for generation in self._generations)

    def time(self, now_ms: int) -> int:
        """Return the time of the window by the broker's time: at least the largest so far."""
        return self._clock.time(now_ms, used_ms=self._now_ms)

    def original_of(self, key: bytes, *, now_ms: int) -> int | None:
        """Return the offset of the message that has this id; `None` if a message with it is new."""
        now_ms = max(now_ms, self._now_ms)
        for generation in reversed(self._generations):
            found = generation.find(key)
            if found is not None:
                offset, accepted_ms = found
                is_young = now_ms - accepted_ms < self._window_ms
                return offset if is_young and offset >= self._floor else None
        return None

    def is_full(self, *, now_ms: int) -> bool:
        """Return whether no more ids can be stored."""
        if len(self) >= IDS_MAX:
            self._now_ms = max(now_ms, self._now_ms)
            self._drop_old()
        return len(self) >= IDS_MAX

    def appended(self, key: bytes, offset: int, *, accepted_ms: int) -> None:
        """Add a message of the log, in the order of offsets.

        The first message with an id begins its window. Another one within it, appended without a
        check, changes nothing.
        """
        self._now_ms = max(accepted_ms, self._now_ms)
        self._drop_old()
        if self.original_of(key, now_ms=self._now_ms) is None and offset >= self._floor:
            self._current(offset).add(key, offset, self._now_ms)

    def forget_below(self, offset: int) -> None:
        """Ignore ids of messages below an offset from now on, after a purge."""
        self._floor = max(offset, self._floor)

    def _drop_old(self) -> None:
        generations = self._generations
        while generations and self._now_ms - generations[0].last_ms >= self._window_ms:
            generations.popleft()

    def _current(self, offset: int) -> _Generation:
        """Return the generation for a message that is accepted now."""
        last = self._generations[-1] if self._generations else None
        if (
            last is None
            or self._now_ms - last.start_ms >= self._window_ms
            or offset - last.base_offset >= GENERATION_OFFSETS_MAX
        ):
            last = _Generation(offset, self._now_ms)
            self._generations.append(last)
        return last
