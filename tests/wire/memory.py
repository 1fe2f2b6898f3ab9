"""A limit on what Python allocates."""

import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def at_most_allocated(limit_bytes: int) -> Generator[None]:
    """Fail when more than `limit_bytes` are allocated at any moment of the block."""
    tracemalloc.start()
    try:
        yield
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes <= limit_bytes, f"{peak_bytes} bytes were allocated"
