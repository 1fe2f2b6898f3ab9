"""The command `tidelog log`."""

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
import trio

from tidelog.broker.inspection.findings import FileCheck
from tidelog.broker.inspection.rows import Row
from tidelog.cli import main
from tidelog.cli.log.view import (
    findings_as_json,
    findings_as_text,
    line_as_json,
    line_as_text,
)
from tidelog.client.client import connect
from tidelog.embedded import open_broker

Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what a broker leaves behind that had a topic, a queue, a group and records."""
    directory = tmp_path_factory.mktemp("written") / "data"

    async def work() -> None:
        async with open_broker(directory) as broker, connect(broker.address) as client:
            await client.admin.create_topic("orders", config={"segment_bytes": "16KiB"})
            async with client.producer() as producer:
                for number in range(40):
                    await producer.send("orders", b"%d" % number * 500, key=b"a key")
            await client.admin.create_queue("billing", topic="orders")
            for message in await client.queue("billing").receive(max_messages=3, wait=1):
                await message.delete()
            async with client.consumer("orders", group_id="g", auto_offset_reset="earliest") as it:
                await anext(aiter(it))
                await it.commit()

    trio.run(work)
    return directory


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    """Return a copy that may be changed."""
    return Path(shutil.copytree(written, tmp_path / "data"))


def dumped(capsys: Printed, *words: str) -> list[dict[str, Any]]:
    status = main.run(["log", "dump", "--json", *words])
    said = capsys.readouterr()
    found = [json.loads(line) for line in said.out.splitlines()]
    assert status == (1 if any(line["type"] == "bad" for line in found) else 0), said.err
    return found


def test_everything_in_a_data_directory_is_readable(data: Path, capsys: Printed) -> None:
    found = dumped(capsys, str(data), "--records")

    files = {path.as_posix() for path in data.rglob("*") if path.is_file()}
    assert {line["file"] for line in found} == files
    types = {str(line["type"]) for line in found}
    assert types == {
        *("segment", "batch", "record", "footer", "index", "index_entry", "checkpoint"),
        *("journal_entry", "raft_entry", "vote", "snapshot", "node", "replicas"),
        *("clean_shutdown", "lock", "idle_logs"),
    }
    records = {
        record["record"]
        for line in found
        if line["type"] == "raft_entry"
        for record in line.get("records", [])
    }
    assert {"TopicCreated", "BrokerRegistered"} <= records
    entries = [line["entry"] for line in found if line["type"] == "journal_entry"]
    assert {"Seeked", "Received", "Deleted"} <= {entry["record"] for entry in entries}


def test_secrets_are_not_in_a_dump(data: Path, capsys: Printed) -> None:
    assert main.run(["log", "dump", "--json", str(data)]) == 0

    out = capsys.readouterr().out
    assert '"receipt_key":"(secret)"' in out


def test_a_dump_for_people_names_each_file_once(data: Path, capsys: Printed) -> None:
    assert main.run(["log", "dump", str(data), "--records"]) == 0

    printed = capsys.readouterr().out.splitlines()
    files = [line for line in printed if not line.startswith(" ")]
    assert len(files) == len(set(files))
    assert any(line.startswith("  batch    @64 ") for line in printed)
    assert any('"a key": "000' in line for line in printed)


def test_a_damaged_file_is_dumped_with_exit_status_1(data: Path, capsys: Printed) -> None:
    (segment, *_) = sorted(data.glob("topics/orders.*/0/*.log"))
    content = bytearray(segment.read_bytes())
    content[200] ^= 1
    segment.write_bytes(content)

    status = main.run(["log", "dump", str(segment)])

    said = capsys.readouterr()
    assert status == 1
    assert "  bad      @64, offset 0: the payload of the batch at offset 0 does not" in said.out
    assert said.err == "error: 1 bad line in the output: see the positions and reasons above\n"


def test_a_good_directory_is_verified_file_by_file(data: Path, capsys: Printed) -> None:
    status = main.run(["log", "verify", str(data), "--json"])

    all_findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (status, {each["status"] for each in all_findings}) == (0, {"ok"})
    files = {path.as_posix() for path in data.rglob("*") if path.is_file()}
    assert {each["file"] for each in all_findings} == files - {f"{data}/lock"}


def test_lost_files_of_a_replica_are_noticed(data: Path, capsys: Printed) -> None:
    (partition,) = data.glob("topics/orders.*/0")
    shutil.rmtree(partition)

    status = main.run(["log", "verify", str(data)])

    said = capsys.readouterr()
    assert status == 1
    assert f"bad  {data}/replicas\n       partition 0 of topic " in said.out
    assert said.err.startswith("error: 1 of ")


def test_corrupt_indexes_are_rebuilt(data: Path, capsys: Printed) -> None:
    (index, *_) = sorted(data.glob("topics/orders.*/0/*.index"))
    before = index.read_bytes()
    index.write_bytes(b"rubbish")
    assert main.run(["log", "verify", str(index.parent)]) == 1

    status = main.run(["log", "repair-index", str(index.parent)])

    assert status == 0
    assert index.read_bytes() == before
    assert main.run(["log", "verify", str(data)]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("command", ["verify", "repair-index"])
async def test_files_of_a_running_broker_are_refused(
    command: str, tmp_path: Path, capsys: Printed
) -> None:
    async with open_broker(tmp_path / "data"):
        status = main.run(["log", command, str(tmp_path / "data" / "metadata")])

    said = capsys.readouterr()
    assert (status, said.out) == (1, "")
    assert said.err.startswith(f"error: data directory {tmp_path / 'data'} is in use by process ")
    assert said.err.count("\n") == 1


def test_a_path_that_is_not_there_is_a_usage_error(tmp_path: Path, capsys: Printed) -> None:
    assert main.run(["log", "dump", str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err


RECORD: Row = {
    "file": "f",
    "type": "record",
    "offset": 7,
    "timestamp_ms": 0,
    "key": b"k",
    "value": b"\xff",
    "headers": [("name", b"v")],
}


def test_bytes_are_text_where_they_are_and_base64_where_not() -> None:
    found = json.loads(line_as_json(RECORD))

    assert (found["key"], found["value"]) == ("k", {"base64": "/w=="})
    assert found["headers"] == [["name", "v"]]
    assert "\n" not in line_as_json({**RECORD, "key": b"two\nlines"})


def test_a_record_is_one_line() -> None:
    assert line_as_text(RECORD) == (
        'record   7  1970-01-01 00:00:00 UTC  "k": {"base64":"/w=="}  headers [["name","v"]]'
    )


def test_a_bad_entry_has_position_and_reason() -> None:
    line: Row = {"file": "f", "type": "bad", "position": 64, "offset": 3, "reason": "torn"}

    assert click.unstyle(line_as_text(line)) == "bad      @64, offset 3: torn"


def test_a_check_has_a_line_for_each_problem() -> None:
    check = FileCheck("f", ("torn", "late"), "a note")

    assert click.unstyle(findings_as_text(check)) == "bad  f  (a note)\n       torn\n       late"
    assert json.loads(findings_as_json(check)) == {
        "file": "f", "status": "bad", "problems": ["torn", "late"], "note": "a note"
    }  # fmt: skip
    assert click.unstyle(findings_as_text(FileCheck("g"))) == "ok   g"
