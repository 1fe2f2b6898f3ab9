"""What a file is, by its name and by where it lies."""

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
        ("clean-shutdown", FileKind.CLEAN_SHUTDOWN),
        ("lock", FileKind.LOCK),
        ("1.log", FileKind.UNKNOWN),
        ("notes.txt", FileKind.UNKNOWN),
    ],
)
def test_a_file_is_what_its_name_says(name: str, kind: FileKind) -> None:
    assert kind_of(name) is kind
    assert kind_of(f"somewhere/{name}") is kind


def test_the_offset_is_in_the_name() -> None:
    assert number_in(f"a/{NUMBER}.log") == 345000
    assert number_in("a/checkpoint") == 0


def test_a_directory_says_whose_partition_is_in_it() -> None:
    assert topic_place(f"/data/topics/my.orders.{ID}/3") == TopicPlace(
        "my.orders", bytes.fromhex(ID), 3
    )
    assert topic_place("/data/metadata") is None
    assert topic_place(f"/data/topics/orders.{ID}/notes") is None


def test_what_records_are_depends_on_whose_log_it_is() -> None:
    assert content_of(f"t/queue@q.{ID}/0", bytes.fromhex(ID)) is Content.JOURNAL
    assert content_of(f"t/orders.{ID}/0", bytes.fromhex(ID)) is Content.RECORDS
    assert content_of("anywhere", OWNER.topic_id) is Content.ENTRIES
    assert content_of("anywhere", None) is Content.RECORDS
