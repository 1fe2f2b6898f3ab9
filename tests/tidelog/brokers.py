"""A broker in a thread of its own, for tests of what blocks."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidelog.blocking.thread import TrioThread
from tidelog.embedded import open_broker


@contextmanager
def broker_in_a_thread(data_dir: Path, **settings: Any) -> Generator[str, None, None]:  # noqa: ANN401
    """Run a broker with some settings while the block runs; give its address."""
    thread = TrioThread(open_broker(data_dir, **settings))
    try:
        yield thread.resource.address
    finally:
        thread.close()
