"""Pool of this process's cluster clients, shared by consecutive tasks.

Shell: the only state that outlives a task. Spark runs many tasks in one worker process; without the
pool each task would connect again.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager

from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.options import ConnectionOptions

_IDLE_MAX = 8
_idle: dict[tuple[int, ConnectionOptions], list[BlockingClusterClient]] = {}
"""Idle clients by process id, because a forked process must not use its parent's connections. A
list's append and pop are atomic, so threads may share it."""


@contextmanager
def borrowed(options: ConnectionOptions) -> Generator[BlockingClusterClient, None, None]:
    """Lend a cluster client, with its open connections, to one caller."""
    free = _idle.setdefault((os.getpid(), options), [])
    try:
        cluster = free.pop()
    except IndexError:
        cluster = BlockingClusterClient(options)
    is_clean = False
    try:
        yield cluster
        is_clean = True
    finally:
        # A caller that stopped early may leave a request in flight; its reply must reach no other.
        if (is_clean or cluster.is_idle) and len(free) < _IDLE_MAX:
            free.append(cluster)
        else:
            cluster.close()
