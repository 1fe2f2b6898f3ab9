"""Tests of the golden small files, earlier versions included."""

import pytest
from msgspec.structs import replace

from tests.golden.regenerate import FOLDER
from tests.golden.small_files import SMALL_FILES, small_files
from tidelog.broker.partitions.data_directory import NodeIdentity
from tidelog.logstore.checkpoint import LogCheckpoint, parse_small_file
from tidelog.logstore.producer_state import ProducerState


def checkpoint(name: str) -> LogCheckpoint:
    return parse_small_file((FOLDER / name).read_bytes(), name, LogCheckpoint)


@pytest.mark.parametrize("name", SMALL_FILES)
def test_encoders_reproduce_the_golden_bytes(name: str) -> None:
    assert small_files()[f"{name}_v1.bin"] == (FOLDER / f"{name}_v1.bin").read_bytes()


@pytest.mark.parametrize("name", SMALL_FILES)
def test_golden_bytes_decode(name: str) -> None:
    content = SMALL_FILES[name]
    data = (FOLDER / f"{name}_v1.bin").read_bytes()

    assert parse_small_file(data, name, type(content)) == content


@pytest.mark.parametrize(
    ("form", "has_high_watermark", "has_deletion_markers"),
    [
        ("of_ten_fields", False, False),
        ("of_eleven_fields", True, False),
        ("without_first_sequence", True, True),
        ("of_twelve_fields", True, True),
    ],
)
def test_a_checkpoint_of_an_earlier_version_is_read_with_defaults(
    form: str, has_high_watermark: bool, has_deletion_markers: bool
) -> None:
    now = checkpoint("checkpoint_v1.bin")

    then = checkpoint(f"checkpoint_v1_{form}.bin")

    assert then.high_watermark == (now.high_watermark if has_high_watermark else 0)
    assert then.has_deletion_markers == has_deletion_markers
    assert then.clean_offset == 0
    assert then.producers == now.producers
    assert replace(then, high_watermark=0, has_deletion_markers=False) == replace(
        now, high_watermark=0, has_deletion_markers=False
    )


def test_a_node_file_of_an_earlier_version_has_no_directory_epoch() -> None:
    name = "node_v1_of_five_fields.bin"
    then = parse_small_file((FOLDER / name).read_bytes(), name, NodeIdentity)

    now = SMALL_FILES["node"]
    assert isinstance(now, NodeIdentity)
    assert then == replace(now, directory_epoch=0)


def test_a_producer_without_a_first_sequence_restarts_at_0() -> None:
    (producer,) = checkpoint("checkpoint_v1_without_first_sequence.bin").producers

    assert producer.first_sequence == 0
    assert producer.expected_sequence == 103
    assert ProducerState(1, 2, 3).expected_sequence == 0
