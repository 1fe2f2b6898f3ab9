"""The little of boto3 that tests use; its clients are made at run time."""

from typing import Any

def client(service_name: str, **options: Any) -> Any: ...
