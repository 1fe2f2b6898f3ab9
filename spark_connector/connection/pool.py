"""Connections of this process, kept from one task to the next.

Shell: the only state that outlives a task. Spark runs many tasks in one worker process, and each of
them would connect anew otherwise.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager

from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.options import ConnectionOptions

_IDLE_MAX = 8
_idle: dict[tuple[int, ConnectionOptions], list[BlockingClusterClient]] = {}
"""By process, for one that is forked must not speak over its parent's connections. Lists are pushed
to and popped from in one step each, so threads may share them."""


@contextmanager
def borrowed(options: ConnectionOptions) -> Generator[BlockingClusterClient, None, None]:
    """Lend a cluster client to one caller, with the connections that others have made."""
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
        # Who was ended in the middle may leave an answer on its way that nobody will take.
        if (is_clean or cluster.is_idle) and len(free) < _IDLE_MAX:
            free.append(cluster)
        else:
            cluster.close()
