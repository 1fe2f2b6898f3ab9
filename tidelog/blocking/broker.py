"""A broker in a thread of this process, for programs without trio."""

import os
from collections.abc import Generator
from contextlib import contextmanager

from tidelog import surface
from tidelog.blocking.thread import TrioThread


@contextmanager
def open_broker(
    data_dir: str | os.PathLike[str], *, listen: str = "127.0.0.1:0", **settings: object
) -> Generator[surface.RunningBroker, None, None]:
    """Run a broker in a thread while the block runs; see `tidelog.open_broker`."""
    thread = TrioThread(surface.open_broker(data_dir, listen=listen, **settings))
    try:
        yield thread.resource
    finally:
        thread.close()
