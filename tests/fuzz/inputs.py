"""Requests and replies that no correct peer sends: samples of all APIs, mutated.

Pure: draws from the `Random` that it is given.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, final

import msgspec
from crc32c import crc32c

from tests.coordinator.raft.test_messages import MESSAGES
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
from tidelog.wire.errors import WireFormatError
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
_LENGTH_MAX: Final = 200_000


@final
class Inputs:
    """An endless sequence of hostile frames."""

    def __init__(
        self, random: Random, *, known: Mapping[object, object], nodes: Sequence[Identity]
    ) -> None:
        """Draw from `random`.

        Args:
            random: Decides everything.
            known: Values of the samples, with those of the cluster in their place.
            nodes: The hostile node, and then those of the cluster.
        """
        self._random = random
        self._known = dict(known)
        self._sender, *self._targets = nodes
        self._ways: Sequence[Callable[[], bytes]] = (
            *((self._strange_request,) * 6),
            *((self._damaged_request,) * 3),
            self._any_bytes,
            self._long_list,
            self._wrong_prefix,
        )

    def frame(self) -> bytes:
        """Return the bytes of one request, or of none."""
        return self._random.choice(self._ways)()

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
        if exchange.api.key == api.RAFT.key:
            request = msgspec.structs.replace(
                request,  # type: ignore[type-var]  # of the API RAFT
                messages=[self._raft_message() for _ in range(self._random.randrange(4))],
            )
        header = _encoded(self._mutated(self._adapted(_plain(request))))
        attachment = self._random.randbytes(self._random.choice((0, 0, 5, 5000)))
        return (
            encode_frame(
                FrameKind.REQUEST,
                api_key=exchange.api.key,
                api_version=self._version(exchange),
                correlation_id=self._random.randrange(1 << 32),
                header=header,
                attachment_length=len(attachment),
            )
            + attachment
        )

    def _damaged_request(self) -> bytes:
        exchange = self._exchange()
        frame = exchange.api.encode_request(exchange.request, version=1, correlation_id=1)
        return self._damaged(frame)

    def _any_bytes(self) -> bytes:
        return self._random.randbytes(self._random.choice((1, 23, 24, 100, 10_000)))

    def _long_list(self) -> bytes:
        """Return a good frame whose longest list has very many items."""
        exchange = self._exchange()
        plain = _plain(exchange.request)
        lists = [place for place, each in enumerate(plain) if isinstance(each, list) and each]
        if lists:
            place = self._random.choice(lists)
            count = self._random.choice((999, 1001, 5000, _LENGTH_MAX // 10))
            plain[place] = plain[place][:1] * count
        return encode_frame(
            FrameKind.REQUEST,
            api_key=exchange.api.key,
            api_version=self._version(exchange),
            correlation_id=1,
            header=_encoded(plain),
        )

    def _wrong_prefix(self) -> bytes:
        """Return a frame that announces more than it has."""
        length = self._random.choice((1 << 14, 1 << 20, 16 << 20, (16 << 20) + 1, (1 << 32) - 1))
        prefix = struct.pack("<IIBBHHHI", length, 1, 1, 0, 8, 1, 0, 10)
        header = self._random.randbytes(10)
        return prefix + struct.pack("<I", crc32c(header, crc32c(prefix))) + header

    def _adapted(self, value: Any) -> Any:  # noqa: ANN401  (any value of msgpack)
        """Return a value of a sample with the ids of the cluster."""
        if isinstance(value, list):
            return [self._adapted(each) for each in value]
        return self._known.get(value, value) if isinstance(value, (bytes, str)) else value

    def _raft_message(self) -> bytes:
        """Return a message of Raft that no leader of the cluster could have sent."""
        message = msgspec.structs.replace(
            self._random.choice(MESSAGES),
            sender=self._sender,
            target=self._random.choice(self._targets),
        )
        mutated = _encoded(self._mutated(msgspec.msgpack.decode(encode(message))))
        return b"" if _is_of_a_leader(mutated) else mutated

    def _version(self, exchange: Exchange) -> int:
        versions = range(exchange.api.min_version, exchange.api.max_version + 1)
        return self._random.choice((*versions, *versions, 0, 99))

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
        return _resealed(bytes(result)) if self._random.random() < 0.8 else bytes(result)

    def _mutated(self, value: Any) -> Any:  # noqa: ANN401  (any value of msgpack)
        """Return a value with some of its parts replaced."""
        if isinstance(value, list) and value and self._random.random() < 0.9:
            place = self._random.randrange(len(value))
            changed = [*value]
            changed[place] = self._mutated(changed[place])
            if self._random.random() < 0.1:
                del changed[self._random.randrange(len(changed)) :]
            return changed
        kinds: Sequence[Sequence[Any]] = (_NUMBERS, _TEXTS, _BYTES, (None, True, [], {}, 1.5))
        same = [kind for kind in kinds if isinstance(value, type(kind[0]))]
        return self._random.choice(self._random.choice([*same, *same, *kinds]))


def _plain(message: object) -> list[Any]:
    """Return a message as the lists and values that are on the wire."""
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    assert isinstance(plain, list)
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
