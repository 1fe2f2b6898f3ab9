"""The little of aioboto3 that a program of the trial uses."""

from contextlib import AbstractAsyncContextManager
from typing import Any

class Session:
    def client(self, service_name: str) -> AbstractAsyncContextManager[Any]: ...
