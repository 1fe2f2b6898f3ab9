"""The age of a starting node's data directory, by the answers of others."""

import msgspec
import pytest

from tidelog.coordinator.bootstrap.generation import (
    SILENT_MS,
    Generation,
    GenerationCheck,
    known_directories,
    stored_brokers,
)
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
    Record,
)
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import Entry, EntryKind
from tidelog.wire.messages.cluster import KnownDirectory, Peer, PeerStatusReply

OWN = KnownDirectory(1, "disk", 5)
VOTERS = [Identity(2, b"two"), Identity(3, b"three")]


def check() -> GenerationCheck:
    return GenerationCheck(OWN, "cluster", VOTERS, asked={2, 3})


def status(
    voter: Identity,
    *known: KnownDirectory,
    is_leading: bool = False,
    cluster_id: str | None = "cluster",
) -> PeerStatusReply:
    peer = Peer(voter.node_id, voter.disk_id)
    return PeerStatusReply(peer, [1, 2, 3], cluster_id, [], list(known), is_leading)


def test_one_node_that_knows_a_later_epoch_is_enough() -> None:
    checked = check()
    checked.answered(status(Identity(9, b"no voter"), KnownDirectory(1, "disk", 6)), now_ms=0)

    assert checked.decide(now_ms=0) is Generation.OLD
    assert checked.known_epoch == 6


@pytest.mark.parametrize(
    "known", [KnownDirectory(1, "disk", 5), KnownDirectory(1, "other", 9), KnownDirectory(2, "", 9)]
)
def test_the_directory_is_current_when_all_voters_know_no_later_epoch(
    known: KnownDirectory,
) -> None:
    checked = check()
    checked.answered(status(VOTERS[0], known), now_ms=0)
    assert checked.decide(now_ms=0) is Generation.UNKNOWN
    checked.answered(status(VOTERS[1]), now_ms=0)

    assert checked.decide(now_ms=0) is Generation.CURRENT


def test_the_answer_of_the_controller_is_enough() -> None:
    checked = check()
    checked.answered(status(VOTERS[1], is_leading=True), now_ms=0)

    assert checked.decide(now_ms=0) is Generation.CURRENT


def test_a_silent_voter_is_waited_for_from_the_first_answer_on_and_not_for_long() -> None:
    checked = check()
    assert checked.decide(now_ms=10 * SILENT_MS) is Generation.UNKNOWN
    checked.answered(status(VOTERS[0]), now_ms=10 * SILENT_MS)

    assert checked.decide(now_ms=11 * SILENT_MS - 1) is Generation.UNKNOWN
    assert checked.decide(now_ms=11 * SILENT_MS) is Generation.CURRENT


def test_only_voters_of_the_same_cluster_end_the_wait() -> None:
    checked = check()
    checked.answered(status(Identity(2, b"lost its metadata")), now_ms=0)
    checked.answered(status(VOTERS[0], KnownDirectory(1, "disk", 6), cluster_id="other"), now_ms=0)
    assert checked.decide(now_ms=SILENT_MS) is Generation.UNKNOWN

    for voter in VOTERS:
        checked.answered(status(voter, cluster_id=None), now_ms=0)
    assert checked.decide(now_ms=0) is Generation.CURRENT


def entry(*records: Record) -> Entry:
    return Entry(1, 1, EntryKind.COMMAND, msgspec.msgpack.encode(records))


def test_stored_entries_tell_the_epochs_of_directories() -> None:
    first = BrokerRegistration(1, "disk", "x", 1, "host", 1, "")
    again = BrokerRegistration(1, "disk", "y", 3, "host", 1, "", directory_epoch=1)
    entries = [
        entry(BrokerRegistered(first)),
        entry(BrokerChanged(1, is_fenced=False, is_shutting_down=False, directory_epoch=1)),
        Entry(1, 1, EntryKind.TERM_START, b""),
        entry(BrokerRegistered(msgspec.structs.replace(first, node_id=2, directory_epoch=2))),
    ]

    assert known_directories(stored_brokers(b"", entries)) == [
        KnownDirectory(1, "disk", 1),
        KnownDirectory(2, "disk", 2),
    ]
    later = [*entries, entry(BrokerUnregistered(2), BrokerRegistered(again))]
    earlier = [KnownDirectory(1, "disk", 4), KnownDirectory(2, "disk", 2)]
    assert known_directories(stored_brokers(b"", later), earlier) == earlier
