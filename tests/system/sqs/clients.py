"""Clients of the SQS front: boto3 as it is, and with the query protocol of its earlier versions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import boto3
import botocore.session
from botocore.config import Config

from tests.system.sqs.query_model import query_model

REGION: Final = "us-east-1"
VERSION: Final = "2012-11-05"
CONFIG: Final = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=60)


class SqsClient(Protocol):
    """A client of SQS; botocore makes its methods at run time, from the model of the service."""

    exceptions: Any

    def get_paginator(self, operation_name: str) -> Any: ...  # noqa: ANN401

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]: ...


def json_client(endpoint: str, key_id: str = "AIDATEST", secret: str = "secret") -> SqsClient:
    """Return a client of boto3, which speaks JSON."""
    client: SqsClient = boto3.client("sqs", config=CONFIG, **_access(endpoint, key_id, secret))
    return client


def query_client(
    endpoint: str, models: Path, *, key_id: str = "AIDATEST", secret: str = "secret"
) -> SqsClient:
    """Return a client that speaks the query protocol; its model is written below `models`."""
    session = botocore.session.get_session()
    loader = session.get_component("data_loader")
    model = query_model(loader.load_service_model("sqs", "service-2", VERSION))
    folder = models / "sqs" / VERSION
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "service-2.json").write_text(json.dumps(model), encoding="utf-8")
    session = botocore.session.get_session()
    session.get_component("data_loader").search_paths.insert(0, str(models))
    client: SqsClient = session.create_client(
        "sqs", config=CONFIG, **_access(endpoint, key_id, secret)
    )
    return client


def _access(endpoint: str, key_id: str, secret: str) -> dict[str, str]:
    return {
        "endpoint_url": endpoint,
        "region_name": REGION,
        "aws_access_key_id": key_id,
        "aws_secret_access_key": secret,
    }
