"""Garbage collection in the worker processes of PySpark.

PySpark's daemon collects garbage after each task, in the worker process that ran it. A full
collection visits all objects of Python, PySpark, pyarrow and this package: about 200,000, which
takes 30 to 60 ms and is most of the CPU of a short task.
"""

import gc
import sys
from functools import cache


@cache  # Once in each process: what later tasks allocate stays visible to collections.
def keep_imports_out_of_collections() -> None:
    """Exempt the existing objects of a worker process from garbage collections.

    Only in a process that PySpark's daemon forked: other processes belong to users.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        gc.freeze()
