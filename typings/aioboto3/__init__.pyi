"""The little of aioboto3 that a program of the trial uses."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from botocore.config import Config

class Session:
    def client(self, service_name: str, *, config: Config) -> AbstractAsyncContextManager[Any]: ...
