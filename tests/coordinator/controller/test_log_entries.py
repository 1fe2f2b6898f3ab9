"""One log and one snapshot for metadata and groups."""

import msgspec
import pytest

from tests.coordinator.decoded_records import check_decodes_to_itself
from tests.coordinator.groups.conversation import Conversation
from tests.coordinator.metadata.clusters import Cluster
from tests.golden import group_records, metadata_records
from tidelog.coordinator.controller.log_entries import (
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.metadata.records import BrokerUnregistered, ClusterConfigSet
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.wire.errors import InvalidRequestError

CLUSTER = metadata_records.RECORDS
GROUPS = group_records.RECORDS


def test_an_entry_is_one_array_of_records_of_one_kind() -> None:
    check_decodes_to_itself(CLUSTER)
    check_decodes_to_itself(GROUPS)
    assert decode_entry(encode_entry(CLUSTER)) == (CLUSTER, [])
    assert decode_entry(memoryview(encode_entry(GROUPS))) == ([], GROUPS)
    assert decode_entry(encode_entry([])) == ([], [])


@pytest.mark.parametrize("entry", [encode_entry(CLUSTER), encode_entry(GROUPS)])
def test_a_truncated_or_too_long_entry_is_refused(entry: bytes) -> None:
    for end in range(len(entry)):
        with pytest.raises(msgspec.MsgspecError):
            decode_entry(entry[:end])
    with pytest.raises(msgspec.MsgspecError):
        decode_entry(entry + b"\x00")


def test_an_unknown_record_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError, match="Invalid value"):
        decode_entry(msgspec.msgpack.encode([["broker-praised", 1]]))


def test_an_appended_field_of_a_newer_version_is_ignored() -> None:
    newer = msgspec.msgpack.encode([["broker-unregistered", 7, "it was time"]])

    assert decode_entry(newer) == ([BrokerUnregistered(7)], [])


@pytest.mark.parametrize("node_id", [-1, 1 << 31, 1 << 70])
def test_an_entry_that_no_node_can_read_is_not_written(node_id: int) -> None:
    with pytest.raises(InvalidRequestError, match="metadata that no node can read"):
        encode_entry([BrokerUnregistered(node_id)])


def test_text_without_an_encoding_is_not_written() -> None:
    with pytest.raises(InvalidRequestError, match="metadata that no node can read"):
        encode_entry([ClusterConfigSet({"\ud800": "1"})])


def states() -> tuple[MetadataStateMachine, ConsumerGroups]:
    talk = Conversation()
    talk.join("a")
    talk.settle()
    talk.commit("a", (0, 50))
    return Cluster(1, 2).machine, talk.state


def test_a_snapshot_holds_metadata_and_groups() -> None:
    cluster, groups = states()

    read_cluster, read_groups = decode_snapshot(encode_snapshot(cluster.state, groups))

    assert read_cluster.snapshot() == cluster.snapshot()
    assert read_groups.snapshot() == groups.snapshot()


def test_a_snapshot_without_groups_is_read() -> None:
    cluster, _ = states()

    read_cluster, read_groups = decode_snapshot(cluster.snapshot())

    assert read_cluster.snapshot() == cluster.snapshot()
    assert not read_groups.groups


def test_a_damaged_snapshot_is_refused() -> None:
    cluster, groups = states()
    data = encode_snapshot(cluster.state, groups)

    for damaged in (data[:-1], b"", b"\x90", data + b"\x00"):
        with pytest.raises(msgspec.MsgspecError):
            decode_snapshot(damaged)
