"""Tests of the page about settings."""

import re

from tests.paths import ROOT
from tidelog.broker.config.broker_config import FIELDS
from tidelog.coordinator.metadata.cluster_config import CLUSTER_SETTINGS
from tidelog.coordinator.metadata.topic_config import SETTINGS
from tidelog.wire.config.queue_config import QUEUE_SETTINGS
from tools.config_docs import describe

PAGE = ROOT / "docs" / "configuration.md"


def test_the_page_is_as_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == describe(), "run: python -m tools.config_docs > docs/configuration.md"


def test_every_setting_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \| (\w.+\.) \|$", describe(), re.MULTILINE)

    assert [name for name, *_ in rows] == [*FIELDS, *SETTINGS, *QUEUE_SETTINGS, *CLUSTER_SETTINGS]


def test_numbers_are_written_as_people_write_them() -> None:
    page = describe()

    assert "| `socket_request_max_bytes` | `16MiB` | 2MiB to 256MiB | Longer requests" in page
    assert "| `stalled_request_timeout_ms` | `30s` | 100ms to 1d | A connection" in page
    assert "| `shutdown_grace_ms` | `10s` | 0 to 1h |" in page
    assert "| `node_id` | `1` | 1 to 2147483647 |" in page
    assert "| `log_level` | `info` | debug, info, warning, error |" in page
    assert "| `durability` | `fsync` | fsync, replicated |" in page
