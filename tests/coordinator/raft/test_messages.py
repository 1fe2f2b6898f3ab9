"""Encoding of Raft's messages."""

import msgspec
import pytest

from tests.coordinator.raft.samples import THREE, A, B, at, entries, entry, snapshot
from tidelog.coordinator.raft.membership import encode_membership
from tidelog.coordinator.raft.messages import (
    ENTRY_COUNT_MAX,
    ENTRY_OVERHEAD_BYTES,
    AppendRefusal,
    AppendReply,
    AppendRequest,
    Entry,
    EntryId,
    EntryKind,
    Message,
    PreVoteReply,
    PreVoteRequest,
    SnapshotRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
    decode,
    encode,
)
from tidelog.wire.errors import WireFormatError

MESSAGES: list[Message] = [
    PreVoteRequest(A, B, 3, at(7, 2)),
    PreVoteReply(A, B, 3, 2, is_granted=True),
    VoteRequest(A, B, 3, at(7, 2), is_transfer=False),
    VoteReply(A, B, 3, is_granted=False),
    AppendRequest(A, B, 3, at(7, 2), 6, 4, 1, (entry(8, 2, b"x"), entry(9, 3))),
    AppendRequest(A, B, 1, at(0, 0), 0, 1, 0, (entry(1, 1),)),
    AppendReply(A, B, 3, 9, 8, 4, 1),
    AppendRefusal(A, B, 3, 7, at(5, 2), 4, 1),
    SnapshotRequest(A, B, 3, snapshot(5, 2)),
    TimeoutNow(A, B, 3),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_raft_message_survives_encoding(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_bytes_that_are_cut_short_or_too_long_are_no_message(message: Message) -> None:
    data = encode(message)

    for size in range(len(data)):
        with pytest.raises(WireFormatError):
            decode(data[:size])
    with pytest.raises(WireFormatError):
        decode(data + b"\x00")


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_flipped_bit_gives_another_message_or_none(message: Message) -> None:
    data = encode(message)

    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        try:
            decoded = decode(bytes(flipped))
        except WireFormatError:
            continue
        assert decoded != message


@pytest.mark.parametrize(
    ("previous", "sent"),
    [
        (at(7, 2), entries(2, first=9)),
        (at(7, 2), entries(2, first=7)),
        (at(7, 2), entries(1, first=8)),
        (at(7, 2), entries(3, 2, first=8)),
        (at(7, 2), entries(4, first=8)),
    ],
)
def test_entries_that_cannot_follow_each_other_are_refused(
    previous: EntryId, sent: list[Entry]
) -> None:
    data = encode(AppendRequest(A, B, 3, previous, 6, 4, 0, tuple(sent)))

    with pytest.raises(WireFormatError, match="cannot follow"):
        decode(data)


def test_an_entry_that_should_hold_a_membership_is_checked() -> None:
    def request(payload: bytes) -> bytes:
        sent = Entry(8, 3, EntryKind.MEMBERSHIP, payload)
        return encode(AppendRequest(A, B, 3, at(7, 2), 6, 4, 0, (sent,)))

    decode(request(encode_membership(THREE)))
    with pytest.raises(WireFormatError, match="not a membership"):
        decode(request(b"\xc1"))


def test_negative_and_enormous_numbers_are_refused() -> None:
    negative = msgspec.structs.replace(AppendReply(A, B, 3, 9, 8, 4, 1), received_index=-1)
    enormous = msgspec.structs.replace(AppendReply(A, B, 3, 9, 8, 4, 1), term=2**63)

    for message in (negative, enormous):
        with pytest.raises(WireFormatError):
            decode(encode(message))


@pytest.mark.parametrize(
    ("name", "bits"), [("term", 32), ("received_index", 62), ("durable_index", 62)]
)
def test_terms_have_the_bits_of_the_disk_and_indexes_have_62(name: str, bits: int) -> None:
    reply = AppendReply(A, B, 3, 9, 8, 4, 1)
    largest = msgspec.structs.replace(reply, **{name: 2**bits - 1})
    assert decode(encode(largest)) == largest

    for number in (-1, 2**bits):
        with pytest.raises(WireFormatError, match="not a message of Raft"):
            decode(encode(msgspec.structs.replace(reply, **{name: number})))


def test_a_message_has_a_bounded_number_of_entries() -> None:
    def request(count: int) -> AppendRequest:
        return AppendRequest(A, B, 3, at(0, 0), 0, 4, 0, tuple(entries(*[1] * count)))

    most = request(ENTRY_COUNT_MAX)
    assert decode(encode(most)) == most
    with pytest.raises(WireFormatError, match="not a message of Raft"):
        decode(encode(request(ENTRY_COUNT_MAX + 1)))


@pytest.mark.parametrize(
    ("number", "kind"),
    [(0, EntryKind.COMMAND), (1, EntryKind.TERM_START), (2, EntryKind.MEMBERSHIP)],
)
def test_an_entry_of_an_earlier_version_can_be_read(number: int, kind: EntryKind) -> None:
    """The numbers are on disks."""
    stored = b"\x94\x08\x02" + bytes([number]) + b"\xc4\x01x"

    assert msgspec.msgpack.decode(stored, type=Entry) == Entry(8, 2, kind, b"x")
    assert msgspec.msgpack.encode(Entry(8, 2, kind, b"x")) == stored


def test_an_entry_counts_for_more_than_its_payload() -> None:
    assert entry(1, 1, b"abc").size_bytes == 3 + ENTRY_OVERHEAD_BYTES
