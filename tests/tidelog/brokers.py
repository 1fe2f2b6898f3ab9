"""A broker in a thread of its own, for tests of what blocks."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tidelog.blocking.thread import TrioThread
from tidelog.embedded import open_broker


@contextmanager
def broker_in_a_thread(data_dir: Path) -> Generator[str, None, None]:
    """Run a broker while the block runs; give its address."""
    thread = TrioThread(open_broker(data_dir))
    try:
        yield thread.resource.address
    finally:
        thread.close()
