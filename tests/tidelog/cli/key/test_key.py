"""`tidelog key`, with a broker on a real disk."""

import json
import stat
from pathlib import Path

import pytest

from tidelog import blocking
from tidelog.cli import main

Printed = pytest.CaptureFixture[str]
SECRET = b"a value that no disk may show"


def created(file: Path, capsys: Printed, *options: str) -> str:
    """Create a master key and return its id."""
    assert main.run(["key", "create-master", str(file), *options]) == 0
    return capsys.readouterr().out.split("master key ")[1].split(";")[0]


def bytes_below(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


def listed(address: str, capsys: Printed) -> dict[str, list[dict[str, object]]]:
    assert main.run(["-b", address, "key", "list", "--json"]) == 0
    found: dict[str, list[dict[str, object]]] = json.loads(capsys.readouterr().out)
    return found


def test_a_key_file_is_for_its_user_alone_and_is_not_overwritten(
    tmp_path: Path, capsys: Printed
) -> None:
    file = tmp_path / "master.key"
    first = created(file, capsys)
    before = file.read_text()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert main.run(["key", "create-master", str(file)]) == 1
    assert file.read_text() == before
    second = created(file, capsys, "--add")
    assert second != first
    assert file.read_text().endswith(before)
    assert before.split()[1] not in capsys.readouterr().out


def test_a_topic_is_encrypted_rotated_rewrapped_and_shredded(
    tmp_path: Path, capsys: Printed
) -> None:
    file, data = tmp_path / "master.key", tmp_path / "data"
    first = created(file, capsys)
    with (
        blocking.open_broker(
            data, master_key_file=str(file), maintenance_interval_ms=100
        ) as broker,
        blocking.connect(broker.address) as client,
        client.producer() as producer,
    ):
        client.admin.create_topic("orders", config={"encryption": "on"})
        producer.send("orders", SECRET)
        assert main.run(["-b", broker.address, "key", "rotate", "orders"]) == 0
        producer.send("orders", b"second")
        assert "key 2 of orders is the data key" in capsys.readouterr().out
        second = created(file, capsys, "--add")
        assert main.run(["-b", broker.address, "key", "rewrap"]) == 0
        assert "2 keys of orders are wrapped" in capsys.readouterr().out

        found = listed(broker.address, capsys)

        assert [each["topic"] for each in found["topics"]] == ["orders"]
        assert found["brokers"][0]["master_ids"] == [second, first]
        assert main.run(["-b", broker.address, "key", "shred", "orders", "--yes"]) == 0
        producer.send("orders", b"third")
        with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            assert next(iter(consumer)).value == b"third"
    assert SECRET not in bytes_below(data)


def test_a_broker_that_cannot_read_its_key_file_says_so(tmp_path: Path, capsys: Printed) -> None:
    file = tmp_path / "master.key"
    created(file, capsys)
    file.chmod(0o644)
    with blocking.open_broker(tmp_path / "data", master_key_file=str(file)) as broker:
        assert (
            main.run(["-b", broker.address, "topic", "create", "a", "--config", "encryption=on"])
            == 0
        )
        assert main.run(["-b", broker.address, "key", "rotate", "a"]) == 1
        assert f"run: chmod 600 {file}" in capsys.readouterr().err
        assert main.run(["-b", broker.address, "cluster", "status"]) == 0
        out = capsys.readouterr().out
        assert "node 1 can neither read nor write 1 topic: tidelog key list" in out
