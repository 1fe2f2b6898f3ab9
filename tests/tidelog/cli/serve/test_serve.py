"""The command `tidelog serve`, as far as it runs inside of a test."""

import gc
import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from tidelog.broker.partitions.idle_replicas import IDLE_LOGS_NAME
from tidelog.cli import main
from tidelog.client.client import connect
from tidelog.embedded import open_broker

pytestmark = pytest.mark.usefixtures("restored_logging")


class Listener(logging.Handler):
    """Does something when the log says something."""

    def __init__(self, said: str, react: Callable[[], None]) -> None:
        super().__init__()
        self._said = said
        self._react = react

    def emit(self, record: logging.LogRecord) -> None:
        if self._said in record.getMessage():
            self._react()


@pytest.fixture
def on_log() -> Iterator[Callable[[str, Callable[[], None]], None]]:
    """Return a function that has something done when the log says something."""
    log = logging.getLogger("tidelog")
    listeners: list[Listener] = []

    def add(said: str, react: Callable[[], None]) -> None:
        listeners.append(Listener(said, react))
        log.addHandler(listeners[-1])

    yield add
    for listener in listeners:
        log.removeHandler(listener)


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    """Freeze no objects but those of the test."""
    gc.unfreeze()
    yield
    gc.unfreeze()


OnLog = Callable[[str, Callable[[], None]], None]
SERVE = ["serve", "--listen", "127.0.0.1:0", "--data-dir"]


def end_once() -> Callable[[], None]:
    """Return what sends this process a signal when it is called for the first time."""
    signals = [signal.SIGTERM]

    def end() -> None:
        if signals:
            os.kill(os.getpid(), signals.pop())

    return end


def test_a_signal_while_it_serves_ends_it_in_order(
    tmp_path: Path, on_log: OnLog, capsys: pytest.CaptureFixture[str]
) -> None:
    on_log("listening on", end_once())

    status = main.run([*SERVE, str(tmp_path)])

    assert status == 0
    assert (tmp_path / "clean-shutdown").exists()
    assert f", data in {tmp_path}\n" in capsys.readouterr().err


def test_objects_of_the_start_are_excluded_from_garbage_collection(
    tmp_path: Path, on_log: OnLog
) -> None:
    frozen_counts: list[int] = []
    on_log("listening on", lambda: frozen_counts.append(gc.get_freeze_count()))
    on_log("listening on", end_once())

    main.run([*SERVE, str(tmp_path)])

    assert frozen_counts[0] > len(gc.get_objects())


async def make_many_partitions(data_dir: Path) -> None:
    """Leave a data directory behind whose next start takes a while, and tells how far it is."""
    async with open_broker(data_dir) as broker, connect(broker.address) as client:
        await client.admin.create_topic("orders", 150)


def test_a_signal_while_it_starts_ends_it_like_a_crash(
    tmp_path: Path, on_log: OnLog, capsys: pytest.CaptureFixture[str]
) -> None:
    trio.run(make_many_partitions, tmp_path)
    (tmp_path / IDLE_LOGS_NAME).unlink()  # Otherwise the start leaves the logs closed.
    on_log("opening_logs", end_once())

    status = main.run([*SERVE, str(tmp_path)])

    said = capsys.readouterr().err
    assert status == 0
    assert "opening_logs opened=100 total=150" in said
    assert "broker_started" not in said
    assert not (tmp_path / "clean-shutdown").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--listen", "a:b"], "listen: 'a:b' is not an address"),
        (["--node-id", "0"], "node_id must be at least 1, not 0"),
    ],
)
def test_an_invalid_setting_is_one_line(
    words: list[str], complaint: str, tmp_path: Path, *, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(["serve", "--data-dir", str(tmp_path / "data"), *words])

    said = capsys.readouterr().err
    assert status == 1
    assert said.startswith(f"error: {complaint}")
    assert said.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
@pytest.mark.parametrize(
    "address",
    [["--listen", "10.0.0.1:8433"], ["--config", "tidelog.toml"]],
)
def test_other_machines_are_not_served_without_protection(
    address: list[str],
    workers: list[str],
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tidelog.toml").write_text('advertised = "10.0.0.1:8433"\n', encoding="ascii")

    status = main.run(["serve", "--data-dir", "data", *workers, *address])

    said = capsys.readouterr().err
    assert status == 1
    assert "is 10.0.0.1:8433, which other machines reach" in said
    assert "`tidelog cluster init-tls" in said
    assert "--insecure-listen" in said
    assert said.count("\n") == 1
    assert not Path("data").exists()


def test_other_machines_are_served_without_protection_on_request(
    tmp_path: Path, on_log: OnLog, capsys: pytest.CaptureFixture[str]
) -> None:
    on_log("listening on", end_once())

    status = main.run(
        ["serve", "--listen", "0.0.0.0:0", "--insecure-listen", "--data-dir", str(tmp_path)]
    )

    assert status == 0
    assert "insecure_listen listen=0.0.0.0:0" in capsys.readouterr().err


def test_a_broker_serves_sqs_on_request(
    tmp_path: Path, on_log: OnLog, capsys: pytest.CaptureFixture[str]
) -> None:
    on_log("serving SQS on", end_once())

    status = main.run(
        [
            *("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)),
            *("--sqs-listen", "127.0.0.1:0", "--sqs-no-auth"),
        ]
    )

    assert status == 0
    assert "serving SQS on http://127.0.0.1:" in capsys.readouterr().err


def test_sqs_without_signatures_is_refused_for_other_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--sqs-listen", "0.0.0.0", "--sqs-no-auth", "--data-dir", str(tmp_path / "data")]

    assert main.run(["serve", *options]) == 1

    assert "cannot serve SQS on 0.0.0.0:9324 without signatures" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot read the configuration file {file}: No such file or directory"),
        (b"listen = ", "the configuration file {file} is not TOML: "),
        (b"\xff\xfe", "cannot read the configuration file {file}: it is not UTF-8 text"),
        (
            b"listne = '127.0.0.1:1'",
            "{file}: there is no setting 'listne'; did you mean listen?",
        ),
        (b"node_id = 'one'", "{file}: node_id is 'one', it must be a whole number"),
        (b"node_id = 0", "node_id must be at least 1, not 0"),
        (b"[topic_defaults]\nretention_ms = 'soon'", "topic_defaults: retention_ms is 'soon', it"),
    ],
)
def test_an_invalid_configuration_file_is_one_line(
    content: bytes | None, complaint: str, tmp_path: Path, *, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tidelog.toml"
    if content is not None:
        file.write_bytes(content)

    status = main.run(["serve", "--config", str(file), "--data-dir", str(tmp_path / "data")])

    said = capsys.readouterr().err
    assert status == 1
    assert said.startswith(f"error: {complaint.format(file=file)}")
    assert said.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("words", [["--node-id", "one"], ["--log-level", "loud"], ["extra"]])
def test_wrong_use_is_explained(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["serve", *words]) == 2
    assert capsys.readouterr().err.startswith("Usage: tidelog serve ")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "tidelog.toml"
    path.write_text(
        'listen = "0.0.0.0:1"\nnode_id = 2\n[topic_defaults]\nretention_ms = "1d"\n',
        encoding="ascii",
    )
    return str(path)


def test_each_setting_is_shown_with_its_source(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDELOG_NODE_ID", "3")
    monkeypatch.setenv("TIDELOG_LISTEN", "127.0.0.1:2")

    status = main.run(
        ["serve", "--print-config", "--config", file, "--listen", "127.0.0.1:3", "--json"]
    )

    found = json.loads(capsys.readouterr().out)
    assert status == 0
    assert found["listen"] == {"value": "127.0.0.1:3", "source": "--listen"}
    assert found["node_id"] == {"value": 3, "source": "TIDELOG_NODE_ID"}
    assert found["topic_defaults"] == {"value": {"retention_ms": "1d"}, "source": file}
    assert found["data_dir"] == {"value": "tidelog-data", "source": "default"}


def test_the_settings_table_uses_the_syntax_of_the_file(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(["serve", "--print-config", "--config", file])

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert status == 0
    assert lines[0] == ["SETTING", "VALUE", "SOURCE"]
    assert ["listen", '"0.0.0.0:1"', file] in lines
    assert ["node_id", "2", file] in lines
    assert ["max_open_files", "512", "default"] in lines
    assert ["topic_defaults", "retention_ms", "=", '"1d"', file] in lines


def test_an_invalid_setting_is_reported_with_its_source(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDELOG_MAX_CONNECTIONS", "many")

    status = main.run(["serve", "--print-config", "--config", file])

    assert status == 1
    assert capsys.readouterr().err.startswith(
        "error: TIDELOG_MAX_CONNECTIONS: max_connections is 'many'"
    )
