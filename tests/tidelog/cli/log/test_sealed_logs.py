"""`tidelog log dump` and `verify` with master keys, on what a broker with encrypted topics left."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.wire.batches import reseal
from tidelog.broker.encryption.master_keys import master_key_line
from tidelog.cli import main
from tidelog.client.client import connect
from tidelog.embedded import open_broker
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE
from tidelog.wire.batch.record_batch import header_of

Printed = pytest.CaptureFixture[str]
MASTER, OTHER = (master_key_line(bytes([number] * 32)) for number in (1, 2))


def key_file(path: Path, *lines: str) -> Path:
    path.touch(mode=0o600)
    path.write_text("\n".join(lines), encoding="ascii")
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory with two data keys of `orders`, and a deleted one of `shredded`."""
    folder = tmp_path_factory.mktemp("written")
    keys, data = key_file(folder / "master.key", MASTER), folder / "data"

    async def work() -> None:
        async with (
            open_broker(data, master_key_file=str(keys)) as broker,
            connect(broker.address) as client,
            client.producer() as producer,
        ):
            for topic in ("orders", "shredded"):
                await client.admin.create_topic(topic, config={"encryption": "on"})
                await producer.send(topic, b"a secret", key=b"a key")
            await client.security.rotate_data_key("orders")
            await producer.send("orders", b"another secret")
            await client.security.shred_data_keys("shredded")
            await client.admin.create_topic("plain")
            await producer.send("plain", b"for all")

    trio.run(work)
    return data


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    """Return a copy that may be changed."""
    return Path(shutil.copytree(written, tmp_path / "data"))


@pytest.fixture
def master(tmp_path: Path) -> str:
    return str(key_file(tmp_path / "of_the_broker.key", MASTER))


def values_in(out: str) -> list[str]:
    found = [json.loads(line) for line in out.splitlines()]
    return [line["value"] for line in found if line["type"] == "record"]


def sealed_in(out: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, out.splitlines()) if line["type"] == "sealed"]


def test_a_dump_shows_sealed_records_with_the_master_keys_alone(
    data: Path, master: str, capsys: Printed
) -> None:
    dump = ["log", "dump", "--json", "--records", str(data)]
    assert main.run(dump) == 0
    assert values_in(capsys.readouterr().out) == ["for all"]

    assert main.run([*dump, "--master-key-file", master]) == 0

    out = capsys.readouterr().out
    assert sorted(values_in(out)) == ["a secret", "another secret", "for all"]
    (shredded,) = sealed_in(out)
    assert shredded["reason"] == "its data key was deleted, and its records with it"


def test_a_single_partition_is_opened_by_the_metadata_around_it(
    data: Path, master: str, capsys: Printed
) -> None:
    (partition,) = (data / "topics").glob("orders.*/0")

    assert main.run(["log", "dump", "--records", str(partition), "--master-key-file", master]) == 0

    assert '"a key": "a secret"' in capsys.readouterr().out


def test_another_master_key_opens_nothing_and_finds_no_damage(
    data: Path, tmp_path: Path, capsys: Printed
) -> None:
    options = ["--master-key-file", str(key_file(tmp_path / "other.key", OTHER))]

    assert main.run(["log", "dump", "--json", "--records", str(data), *options]) == 0
    out = capsys.readouterr().out
    assert values_in(out) == ["for all"]
    assert "is wrapped by master key" in sealed_in(out)[0]["reason"]
    assert main.run(["log", "verify", str(data), *options]) == 0
    assert "1 sealed batch not opened: data key 1 of the topic" in capsys.readouterr().out


def test_verify_finds_a_broken_seal_under_right_checksums(
    data: Path, master: str, capsys: Printed
) -> None:
    (segment,) = (data / "topics").glob("orders.*/0/*.log")
    stored = bytearray(segment.read_bytes())
    end = SEGMENT_HEADER_SIZE + header_of(stored[SEGMENT_HEADER_SIZE:]).size
    batch = stored[SEGMENT_HEADER_SIZE:end]
    batch[-1] ^= 1
    stored[SEGMENT_HEADER_SIZE:end] = reseal(batch)
    segment.write_bytes(stored)

    assert main.run(["log", "verify", str(data)]) == 0
    assert main.run(["log", "verify", str(data), "--master-key-file", master]) == 1
    assert "its seal is broken" in capsys.readouterr().out
    assert main.run(["log", "dump", str(data), "--records", "--master-key-file", master]) == 1
    assert "its seal is broken" in capsys.readouterr().out


def test_files_outside_of_a_data_directory_have_no_keys(
    data: Path, master: str, tmp_path: Path, capsys: Printed
) -> None:
    (segment,) = (data / "topics").glob("orders.*/0/*.log")
    copied = str(shutil.copy(segment, tmp_path))

    assert main.run(["log", "dump", copied, "--master-key-file", master]) == 1
    assert "is in no data directory" in capsys.readouterr().err

    shutil.rmtree(data / "metadata")
    assert main.run(["log", "verify", str(data), "--master-key-file", master]) == 1
    assert "the wrapped data keys" in capsys.readouterr().err


def test_a_key_file_that_others_may_read_is_refused(data: Path, master: str) -> None:
    Path(master).chmod(0o644)

    assert main.run(["log", "verify", str(data), "--master-key-file", master]) == 1
