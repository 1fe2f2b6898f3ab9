"""Tests of the kinds of files, by name and place."""

import pytest

from tidelog.broker.inspection.file_kinds import (
    Content,
    FileKind,
    TopicPlace,
    content_of,
    kind_of,
    number_in,
    topic_place,
)
from tidelog.coordinator.raft_node.storage import OWNER

NUMBER = "00000000000000345000"
ID = "ab" * 16


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{NUMBER}.log", FileKind.SEGMENT),
        (f"{NUMBER}.index", FileKind.INDEX),
        (f"{NUMBER}.deleted", FileKind.DELETION_MARKER),
        (f"{NUMBER}.log.stale", FileKind.SET_ASIDE),
        (f"{NUMBER}.index.tmp", FileKind.STAGING_FILE),
        ("checkpoint", FileKind.CHECKPOINT),
        ("checkpoint.tmp", FileKind.STAGING_FILE),
        ("vote", FileKind.VOTE),
        ("snapshot", FileKind.SNAPSHOT),
        ("node", FileKind.NODE),
        ("replicas", FileKind.REPLICAS),
        ("idle-logs", FileKind.IDLE_LOGS),
        ("clean-shutdown", FileKind.CLEAN_SHUTDOWN),
        ("lock", FileKind.LOCK),
        ("1.log", FileKind.UNKNOWN),
        ("notes.txt", FileKind.UNKNOWN),
    ],
)
def test_the_kind_of_a_file_follows_from_its_name(name: str, kind: FileKind) -> None:
    assert kind_of(name) is kind
    assert kind_of(f"somewhere/{name}") is kind


def test_the_offset_is_in_the_file_name() -> None:
    assert number_in(f"a/{NUMBER}.log") == 345000
    assert number_in("a/checkpoint") == 0


def test_a_directory_names_its_topic_and_partition() -> None:
    assert topic_place(f"/data/topics/my.orders.{ID}/3") == TopicPlace(
        "my.orders", bytes.fromhex(ID), 3
    )
    assert topic_place("/data/metadata") is None
    assert topic_place(f"/data/topics/orders.{ID}/notes") is None


def test_the_content_of_records_depends_on_the_log() -> None:
    assert content_of(f"t/queue@q.{ID}/0", bytes.fromhex(ID)) is Content.JOURNAL
    assert content_of(f"t/orders.{ID}/0", bytes.fromhex(ID)) is Content.RECORDS
    assert content_of("anywhere", OWNER.topic_id) is Content.ENTRIES
    assert content_of("anywhere", None) is Content.RECORDS
