"""`tidelog top`."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.broker.replication.three_brokers import TOPIC, ThreeBrokers, live, make_topic
from tests.client.hostile_broker import HELLO, always, hostile_broker_in_a_thread
from tests.coordinator.raft_clients import until
from tests.paths import ROOT
from tests.tidelog.cli.conftest import BrokerThread
from tests.tidelog.cli.top.readings import cluster_of
from tidelog.cli import main
from tidelog.cli.top.activity import FAMILIES, activity_of
from tidelog.cli.top.reader import Wanted, measure, read
from tidelog.client.client import Client
from tidelog.wire.protocol import api

Printed = pytest.CaptureFixture[str]

EVERYTHING = Wanted(list(dict.fromkeys(name for each in FAMILIES.values() for name in each)))
QUICK = ("--interval", "100ms")
_END_S = 60.0


def test_a_pipe_gets_one_table_of_each_panel(
    topic: str, queue: str, tmp_path: Path, *, capsys: Printed
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"hello\n")
    assert main.run(["produce", topic, "--file", str(file)]) == 0
    assert main.run(["queue", "send", queue, "hello"]) == 0
    capsys.readouterr()

    assert main.run(["top", *QUICK]) == 0

    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines[0][0] == "cluster"
    assert lines[1][0] == "healthy;"
    assert ["1", "controller"] in [line[:2] for line in lines]
    assert [queue, "1", "0", "0"] in [line[:4] for line in lines]
    assert {"NODE", "TOPIC", "QUEUE", "GROUP"} <= {line[0] for line in lines}
    assert [topic, "0", "0", "B"] in [line[:4] for line in lines]


@pytest.mark.usefixtures("at_broker")
def test_programs_get_one_document_of_the_selected_panels(queue: str, capsys: Printed) -> None:
    assert main.run(["queue", "send", queue, "hello"]) == 0
    capsys.readouterr()

    words = ["top", "--once", "--json", "--queues", "--brokers", "--filter", queue, *QUICK]
    assert main.run(words) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["queue_count"], found["queues"][0]["name"]) == (1, queue)
    assert found["queues"][0]["sent_per_s"] == 0
    assert found["brokers"][0]["requests_per_s"] > 0
    assert found["interval_s"] >= 0.1
    assert found["alert_count"] == 0
    assert not {"topics", "groups"} & set(found)


@pytest.mark.usefixtures("at_broker")
def test_wrong_options_are_named(capsys: Printed) -> None:
    assert main.run(["top", "--sort", "colour"]) == 2
    assert "'colour' is not one of 'node'" in capsys.readouterr().err
    assert main.run(["top", "--interval", "1ms"]) == 2
    assert main.run(["top", "--once", "--filter", "a.*", *QUICK]) == 1
    assert "write '*' for any characters" in capsys.readouterr().err


def test_brokers_of_an_earlier_version_are_reported(capsys: Printed) -> None:
    with hostile_broker_in_a_thread() as broker:
        apis = [each for each in HELLO.apis if each.api_key != api.READ_METRICS.key]
        broker.answer(api.HELLO, always(replace(HELLO, apis=apis)))
        broker.answer(api.DESCRIBE_CLUSTER, always(cluster_of()))
        host, port = broker.address

        assert main.run(["top", "--once", "--broker", f"{host}:{port}"]) == 1

    error = capsys.readouterr().err
    assert "no broker offers metrics: " in error
    assert error.endswith("; upgrade the brokers\n")


def test_a_broker_that_dies_is_shown_and_missing_in_sums() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))

        async def work(client: Client) -> None:
            await make_topic(client, 3)
            async with client.producer() as producer:
                for partition in range(3):
                    await producer.send(TOPIC, b"value", partition=partition)
            whole = await measure(client, EVERYTHING)
            assert [each.reason for each in whole.brokers] == ["", "", ""]
            assert all(each.requests_per_s for each in whole.brokers)

            before = await read(client, EVERYTHING)
            killed = next(each for each in (1, 2, 3) if each != brokers.controller())
            brokers.kill(killed)
            early = activity_of(before, await read(client, EVERYTHING))
            states = {each.node_id: each.state for each in early.brokers}
            assert states[killed] == "no answer"
            assert sorted(states.values()) == ["alive", "alive", "no answer"]
            (topic,) = early.topics
            assert topic.size_bytes is not None
            assert topic.size_bytes < (whole.topics[0].size_bytes or 0)

            controller = brokers.state(brokers.controller())
            await until(lambda: controller.brokers[killed].is_fenced, 30)
            await until(lambda: brokers.in_sync() == {1, 2, 3} - {killed}, 60)
            late = await measure(client, EVERYTHING)
            assert late.alert_count
            assert {each.node_id: each.state for each in late.brokers}[killed] == "fenced"
            assert late.topics[0].under_replicated_count == 3

        await brokers.with_client(work)

    live(5, main)


@contextmanager
def on_a_terminal(
    *words: str, lines: int = 30, columns: int = 100
) -> Generator["Terminal", None, None]:
    """Run a command on a terminal of this size while the block runs."""
    own, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words],
        stdin=other,
        stdout=other,
        stderr=other,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm"},
    )
    try:
        yield Terminal(own, other, process)
    finally:
        process.kill()
        process.wait()
        os.close(own)
        os.close(other)


class Terminal:
    """A terminal, and the command on it."""

    def __init__(self, own: int, other: int, process: "subprocess.Popen[bytes]") -> None:
        self._own = own
        self._other = other
        self._process = process
        self.is_canonical = self._lflag_has(termios.ICANON)

    def press(self, key: str) -> None:
        os.write(self._own, key.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def read_until(self, text: str) -> str:
        """Return the output up to a text, which comes before the limit of time of a test."""
        found = ""
        while text not in found:
            found += os.read(self._own, 65_536).decode(errors="replace")
        return found

    def status(self) -> int:
        """Return the exit status of the command."""
        return self._process.wait(_END_S)

    def _lflag_has(self, flag: int) -> bool:
        return bool(termios.tcgetattr(self._other)[3] & flag)

    def is_restored(self) -> bool:
        """Return whether the terminal waits for Enter again."""
        return self._lflag_has(termios.ICANON) is self.is_canonical


def test_a_terminal_shows_the_view_until_a_key_ends_it(
    broker_address: str, queue: str, capsys: Printed
) -> None:
    assert main.run(["queue", "send", queue, "hello"]) == 0
    capsys.readouterr()
    words = ("top", "--broker", broker_address, *QUICK, "--queues", "--groups")
    with on_a_terminal(*words) as terminal:
        shown = terminal.read_until("s sort: default")
        assert "brokers answer" in shown
        assert queue in shown
        assert "3 queues" in shown
        assert "2 topics" not in shown
        terminal.press("3s")
        assert "QUEUE" in terminal.read_until("s sort: name")
        terminal.press("q")
        assert terminal.status() == 0
        assert terminal.is_restored()


def test_the_view_goes_on_without_a_broker_until_a_signal_ends_it(tmp_path: Path) -> None:
    with ExitStack() as broker:
        address = broker.enter_context(BrokerThread(tmp_path))
        with on_a_terminal("top", "--broker", address, *QUICK) as terminal:
            terminal.read_until("s sort: default")
            broker.close()
            assert "1 of 1 brokers answer" in terminal.read_until("the figures are ")
            terminal.interrupt()
            assert terminal.status() == 130
            assert terminal.is_restored()
