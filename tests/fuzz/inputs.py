"""Requests and replies that no correct peer sends: samples of all APIs, mutated.

Pure: draws from the `Random` that it is given.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, Final, NamedTuple, TypeGuard, final

import msgspec
from crc32c import crc32c

from tests.coordinator.raft.test_messages import MESSAGES
from tests.wire.group_samples import OTHER_TOPIC_ID, TOPIC_ID
from tests.wire.samples import EXCHANGES, Exchange
from tidelog.coordinator.controller.log_entries import decode_entry
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import (
    AppendRequest,
    EntryKind,
    SnapshotRequest,
    decode,
    encode,
)
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import Columns, encode_batch, stamp_replica
from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.cluster import RaftRequest
from tidelog.wire.messages.handshake import HelloRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.frame import PREFIX_SIZE, FrameKind, encode_frame

HELLO: Final = api.HELLO.encode_request(HelloRequest("fuzz", "1"), version=1, correlation_id=0)
_NUMBERS: Final = (
    *(0, 1, 2, 3, 9, -1, 127, 255, 1000, 4096, 65_535, 1 << 20, (1 << 31) - 1, 1 << 31),
    *((1 << 32) - 1, 1 << 32, (1 << 62) - 1, (1 << 63) - 1, (1 << 64) - 1, -(1 << 63)),
)
_TEXTS: Final = ("", ".", "-rf", "a/b", "x" * 250, "\x00", "\x1b[2J", "\U0001f600", "orders")
_BYTES: Final = (b"", b"\x00", b"\xff" * 16, b"\xc1", b"\x91" * 100, b"x" * 300)
_CLUSTER_ID: Final = "5f3a9c1e7b2d4f60a8c1e3d5"
"""The cluster of the samples."""
_LENGTH_MAX: Final = 20_000
_SAME_KIND: Final = 0.8
"""Probability that a value is replaced by one of its type: others end at the decoder."""
_BATCH_BYTES: Final = 145
"""The length of batches in the samples."""
_BATCH_CRC: Final = (struct.Struct("<I"), 20, 32)
"""The checksum of a batch, its place, and the first byte that it covers."""
_OF_BATCHES: Final = frozenset({api.PRODUCE.key, api.SEND.key, api.STAGE.key})
_HARMLESS: Final = frozenset(
    {
        *(api.PRODUCE.key, api.FETCH.key, api.LIST_OFFSETS.key),
        *(api.REPLICA_FETCH.key, api.REPLICA_DURABLE.key, api.REPLICA_READ.key),
    }
)
"""APIs whose requests delete no records of a topic."""


class Targets(NamedTuple):
    """The cluster under attack, in place of the cluster of the samples."""

    hostile: Identity
    """The node that sends messages of Raft."""
    nodes: Sequence[Identity]
    cluster_id: str = _CLUSTER_ID
    victims: Sequence[bytes] = (TOPIC_ID,)
    """Ids of topics and queues that nothing else uses: clients may delete their records."""
    honest: Sequence[bytes] = (TOPIC_ID,)
    """Ids of topics whose records must stay."""


@final
class Inputs:
    """An endless sequence of hostile frames."""

    def __init__(self, random: Random, targets: Targets) -> None:
        """Draw everything from `random`."""
        self._random = random
        self._targets = targets
        self._batches = [*_batches(random)]
        self._ways: Sequence[Callable[[], bytes]] = (
            *((self._strange_request,) * 80),
            *((self._damaged_message,) * 19),
            self._long_list,
        )

    def frame(self) -> bytes:
        """Return a request that breaks no frame: the connection goes on."""
        return self._random.choice(self._ways)()

    def last_bytes(self) -> bytes:
        """Return bytes after which nothing on the connection need be understood."""
        ways = (self._damaged_frame, self._any_bytes, self._wrong_prefix)
        return self._random.choice(ways)()

    def reply_to(self, api_key: int, version: int, correlation_id: int) -> bytes:
        """Return a hostile reply to a request."""
        exchange = next(each for each in EXCHANGES if each.api.key == api_key)
        kind = FrameKind.ERROR if self._random.random() < 0.1 else FrameKind.REPLY
        header = msgspec.msgpack.encode(self._mutated(_plain(exchange.reply)))
        frame = encode_frame(
            kind,
            api_key=api_key,
            api_version=version,
            correlation_id=correlation_id,
            header=header,
        )
        return self._damaged(frame) if self._random.random() < 0.1 else frame

    def _exchange(self) -> Exchange:
        return self._random.choice(EXCHANGES)

    def _strange_request(self) -> bytes:
        """Return a good frame with a message that has wrong values."""
        exchange = self._exchange()
        request = exchange.request
        if isinstance(request, RaftRequest):
            request = msgspec.structs.replace(
                request,
                messages=[self._raft_message() for _ in range(self._random.randrange(4))],
            )
        plain = self._adapted(_plain(request), self._topic_id(exchange))
        if exchange.api.key not in _OF_BATCHES or self._random.random() < 0.5:
            attachment = self._random.randbytes(self._random.choice((0, 0, 5, 5000)))
            return self._request(exchange, _encoded(self._mutated(plain)), attachment)
        batch = self._random.choice(self._batches)
        plain = _replaced(plain, _BATCH_BYTES, len(batch))
        if self._random.random() < 0.5:
            plain = self._mutated(plain)
        return self._request(exchange, _encoded(plain), batch)

    def _damaged_message(self) -> bytes:
        """Return a good frame around bytes that were a message."""
        exchange = self._exchange()
        plain = self._adapted(_plain(exchange.request), self._topic_id(exchange))
        return self._request(exchange, self._damaged(_encoded(plain)))

    def _request(self, exchange: Exchange, header: bytes, attachment: bytes = b"") -> bytes:
        frame = encode_frame(
            FrameKind.REQUEST,
            api_key=exchange.api.key,
            api_version=self._version(exchange),
            correlation_id=self._random.getrandbits(32),
            header=header,
            attachment_length=len(attachment),
        )
        return frame + attachment

    def _damaged_frame(self) -> bytes:
        exchange = self._exchange()
        frame = exchange.api.encode_request(exchange.request, version=1, correlation_id=1)
        frame = self._damaged(frame)
        return _resealed(frame) if self._random.random() < 0.8 else frame

    def _any_bytes(self) -> bytes:
        return self._random.randbytes(self._random.choice((1, 23, 24, 100, 10_000)))

    def _long_list(self) -> bytes:
        """Return a good frame one of whose lists has very many items."""
        exchange = self._exchange()
        plain = self._adapted(_plain(exchange.request), self._topic_id(exchange))
        lists = [place for place, each in enumerate(plain) if _is_list(each) and each]
        if lists:
            place = self._random.choice(lists)
            plain[place] = plain[place][:1] * self._random.choice((999, 1001, 5000, _LENGTH_MAX))
        return self._request(exchange, _encoded(plain))

    def _wrong_prefix(self) -> bytes:
        """Return a frame that announces more than it has."""
        length = self._random.choice((1 << 14, 1 << 20, 16 << 20, (16 << 20) + 1, (1 << 32) - 1))
        prefix = struct.pack("<IIBBHHHI", length, 1, 1, 0, 8, 1, 0, 10)
        header = self._random.randbytes(10)
        return prefix + struct.pack("<I", crc32c(header, crc32c(prefix))) + header

    def _topic_id(self, exchange: Exchange) -> bytes:
        targets = self._targets
        is_harmless = exchange.api.key in _HARMLESS and self._random.random() < 0.5
        return self._random.choice(targets.honest if is_harmless else targets.victims)

    def _adapted(self, value: Any, topic_id: bytes) -> Any:  # noqa: ANN401  (any value of msgpack)
        """Return a value of a sample with ids of the cluster."""
        if _is_list(value):
            return [self._adapted(each, topic_id) for each in value]
        if value in (TOPIC_ID, OTHER_TOPIC_ID):
            return topic_id
        return self._targets.cluster_id if value == _CLUSTER_ID else value

    def _raft_message(self) -> bytes:
        """Return a message of Raft that no leader of the cluster could have sent."""
        message = msgspec.structs.replace(
            self._random.choice(MESSAGES),
            sender=self._targets.hostile,
            target=self._random.choice(self._targets.nodes),
        )
        mutated = _encoded(self._mutated(msgspec.msgpack.decode(encode(message))))
        return b"" if _is_of_a_leader(mutated) else mutated

    def _version(self, exchange: Exchange) -> int:
        if self._random.random() < 0.1:
            return self._random.choice((0, 99))
        return self._random.randint(exchange.api.min_version, exchange.api.max_version)

    def _damaged(self, data: bytes) -> bytes:
        result = bytearray(data)
        for _ in range(self._random.randint(1, 4)):
            at = self._random.randrange(len(result) + 1)
            match self._random.randrange(3):
                case 0:
                    result[at : at + 1] = self._random.randbytes(1)
                case 1:
                    result[at:at] = self._random.randbytes(self._random.randint(1, 8))
                case _:
                    del result[at : at + self._random.randint(1, 30)]
        return bytes(result)

    def _mutated(self, value: Any) -> Any:  # noqa: ANN401  (any value of msgpack)
        """Return a value with some of its parts replaced."""
        if _is_list(value) and self._random.random() < 0.05:
            return [*value, self._mutated(value)]  # As a newer peer sends it.
        if _is_list(value) and value and self._random.random() < 0.9:
            place = self._random.randrange(len(value))
            changed = [*value]
            changed[place] = self._mutated(changed[place])
            if self._random.random() < 0.1:
                del changed[self._random.randrange(len(changed)) :]
            return changed
        kinds: Sequence[Sequence[Any]] = (
            *(_NUMBERS, _TEXTS, _BYTES),
            *((False, True), (None, [], {}, 1.5)),
        )
        same = [kind for kind in kinds if isinstance(value, type(kind[0]))]
        is_same = bool(same) and self._random.random() < _SAME_KIND
        return self._random.choice(self._random.choice(same if is_same else kinds))


def _batches(random: Random) -> Iterator[bytes]:
    """Yield good batches, and damaged ones with valid checksums."""
    seal, at, first = _BATCH_CRC
    for codec, count in product((Codec.NONE, Codec.LZ4, Codec.ZSTD), (1, 3, 1000)):
        columns = Columns(count, keys=[b"key"] * count, values=[b"value"] * count)
        good = encode_batch(columns, first_timestamp_ms=1_700_000_000_000, codec=codec)
        yield bytes(good)
        for _ in range(20):
            batch = bytearray(good)
            for _ in range(random.randint(1, 3)):
                batch[random.randrange(first, min(len(batch), 200))] = random.randrange(256)
            seal.pack_into(batch, at, crc32c(memoryview(batch)[first:]))
            stamp_replica(memoryview(batch), durable_position=0)
            yield bytes(batch)


def _replaced(value: Any, old: object, new: object) -> Any:  # noqa: ANN401  (any value of msgpack)
    if _is_list(value):
        return [_replaced(each, old, new) for each in value]
    return new if value == old else value


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _plain(message: object) -> list[Any]:
    """Return a message as the lists and values that are on the wire."""
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    assert _is_list(plain)
    return plain


def _encoded(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def _resealed(frame: bytes) -> bytes:
    """Return a frame with the checksum that its prefix and header ask for."""
    if len(frame) < PREFIX_SIZE:
        return frame
    (header_length,) = struct.unpack_from("<I", frame, 16)
    header = frame[PREFIX_SIZE : PREFIX_SIZE + header_length]
    return frame[:20] + struct.pack("<I", crc32c(header, crc32c(frame[:20]))) + frame[24:]


def _is_of_a_leader(data: bytes) -> bool:
    """Return whether a node must obey a message that a member sends: it is no defect if it does."""
    try:
        message = decode(data)
        if isinstance(message, AppendRequest):
            for entry in message.entries:
                if entry.kind is EntryKind.COMMAND:
                    decode_entry(entry.payload)
    except (WireFormatError, ValueError):
        return False
    return isinstance(message, (AppendRequest, SnapshotRequest))
