"""Fixtures for tests of commands: a shared broker, and a topic for each test."""

import itertools
import json
import subprocess
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.system.integration.processes import TIDELOG, environment

_numbers = itertools.count()


@contextmanager
def shared_broker(data_dir: Path, variables: Mapping[str, str]) -> Generator[str]:
    """Run a broker with these environment variables until the block ends."""
    command = [*TIDELOG, "serve", "--log-format", "json", "--data-dir", str(data_dir)]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, cwd=ROOT, env=variables
    ) as process:
        assert process.stderr is not None
        events = map(json.loads, process.stderr)
        yield next(event["address"] for event in events if event["event"] == "broker_started")
        process.terminate()


@pytest.fixture(scope="session")
def broker_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a broker for all tests that only send requests to it."""
    with shared_broker(tmp_path_factory.mktemp("shared"), environment()) as address:
        yield address


@pytest.fixture
def topic() -> str:
    """Return a name that no other test uses."""
    return f"topic-{next(_numbers)}"
