"""A broker in a thread, for tests that run commands inside of this process."""

import itertools
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tidelog.cli import main
from tidelog.embedded import open_broker

_numbers = itertools.count()


class BrokerThread:
    """Runs a broker until it is told to stop."""

    def __init__(self, data_dir: Path, **settings: Any) -> None:  # noqa: ANN401  (those of a broker)
        self._data_dir = data_dir
        self._settings = settings
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.address = ""

    def __enter__(self) -> str:
        self._thread.start()
        assert self._started.wait(30)
        return self.address

    def __exit__(self, *_: object) -> None:
        self._token.run_sync_soon(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        trio.run(self._serve)

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        async with open_broker(self._data_dir, **self._settings) as broker:
            self.address = broker.address
            self._started.set()
            await self._stop.wait()


@pytest.fixture(scope="module")
def broker_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a broker for the tests of one module.

    Not for the whole session: a simulation in between, whose guard traps every clock of this
    process, would end it.
    """
    with BrokerThread(tmp_path_factory.mktemp("data")) as address:
        yield address


@pytest.fixture
def at_broker(broker_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands talk to the broker."""
    monkeypatch.setenv("TIDELOG_BROKER", broker_address)


@pytest.fixture
def topic(at_broker: None, capsys: pytest.CaptureFixture[str]) -> str:
    """Create a topic that no other test uses."""
    del at_broker
    name = f"topic-{next(_numbers)}"
    assert main.run(["topic", "create", name]) == 0
    capsys.readouterr()
    return name


@pytest.fixture
def queue(at_broker: None, capsys: pytest.CaptureFixture[str]) -> str:
    """Create a queue that no other test uses."""
    del at_broker
    name = f"queue-{next(_numbers)}"
    assert main.run(["queue", "create", name, "--config", "require_latest_receipt=on"]) == 0
    capsys.readouterr()
    return name


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Put everything about logging back as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    own = logging.getLogger("tidelog")
    own_level = own.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    own.setLevel(own_level)
    logging.captureWarnings(capture=False)
