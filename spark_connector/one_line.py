"""Errors of tidelog in one line of Spark's error, without the frames of the connector.

Shell: sets a variable of the process that ends by the error.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelog.wire.errors import TidelogError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""Variable by which Spark leaves out the traceback when it reports the error of a Python worker."""


@contextmanager
def in_one_line() -> Iterator[None]:
    """Report an error of tidelog without a traceback: its message says what failed and what to do.

    A worker of Spark ends after it has reported an error, so no other error loses its traceback. A
    fault of the connector, which is no `TidelogError`, keeps its own.
    """
    try:
        yield
    except TidelogError:
        if _is_worker_of_spark():
            os.environ[_HIDE] = "1"
        raise


def _is_worker_of_spark() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
