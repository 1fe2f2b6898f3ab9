"""Settings of the SQS front beside a broker."""

import pytest

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.cli.serve.sqs_front import fitting, front_config


@pytest.mark.parametrize(
    ("open_files", "connections"), [(1 << 20, 20_000), (5_000, 5_000 - 3_064), (1_024, 64)]
)
def test_connections_leave_the_broker_its_files(open_files: int, connections: int) -> None:
    config = BrokerConfig(
        sqs_listen="127.0.0.1:0", max_connections=1_000, max_open_files=2_000, sqs_strict="on"
    )
    front = front_config(config)

    assert front is not None
    assert front.settings.is_strict
    assert front.checks_signatures
    assert fitting(front, config, open_files=open_files).limits.connections == connections


def test_a_broker_has_no_front_by_default() -> None:
    assert front_config(BrokerConfig()) is None
