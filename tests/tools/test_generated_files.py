"""Files that tools generate: the blocking calls, and the pages about settings and metrics."""

import inspect
import re

import pytest

import tidelog
from tests.paths import ROOT
from tidelog import blocking
from tidelog.broker.config.broker_config import FIELDS
from tidelog.broker.metrics.catalog import SECTIONS as BROKER_SECTIONS
from tidelog.client.metrics.catalog import SECTIONS as CLIENT_SECTIONS
from tidelog.coordinator.metadata.cluster_config import CLUSTER_SETTINGS
from tidelog.coordinator.metadata.topic_config import SETTINGS
from tidelog.gateway.sqs.metrics import SECTIONS as SQS_SECTIONS
from tidelog.wire.config.group_config import GROUP_SETTINGS
from tidelog.wire.config.queue_config import QUEUE_SETTINGS
from tools import metrics_docs
from tools.config_docs import describe
from tools.face_calls import CALLS, FACES, Calls, Face, written


@pytest.mark.parametrize("calls", CALLS, ids=lambda calls: calls.file)
@pytest.mark.parametrize("face", FACES, ids=lambda face: face.package)
def test_the_written_calls_are_up_to_date(face: Face, calls: Calls) -> None:
    stored = (face.folder / f"{calls.file}.py").read_text(encoding="utf-8")

    assert written(face, calls) == stored, "run: make generate"


@pytest.mark.parametrize("name", ["Admin", "Producer", "Queue", "Message", "Consumer"])
def test_help_says_the_same_as_that_of_the_client(name: str) -> None:
    waiting: type = getattr(blocking, name)
    asynchronous: type = getattr(tidelog, name)
    shared = [each for each in vars(asynchronous) if each in dir(waiting) and each[0] != "_"]

    for method in (
        each for each in shared if inspect.iscoroutinefunction(vars(asynchronous)[each])
    ):
        about = inspect.getdoc(getattr(asynchronous, method))
        assert about is not None
        assert inspect.getdoc(getattr(waiting, method)) == about.replace("await ", "")
        assert not inspect.iscoroutinefunction(getattr(waiting, method))


PAGE = ROOT / "docs" / "configuration.md"


def test_the_page_is_as_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == describe(), "run: python -m tools.config_docs > docs/configuration.md"


def test_every_setting_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \| (\w.+\.) \|$", describe(), re.MULTILINE)

    settings = [*FIELDS, *SETTINGS, *QUEUE_SETTINGS, *GROUP_SETTINGS, *CLUSTER_SETTINGS]
    assert [name for name, *_ in rows] == settings


def test_numbers_are_written_as_people_write_them() -> None:
    page = describe()

    assert "| `socket_request_max_bytes` | `16MiB` | 2MiB to 256MiB | Maximum size" in page
    assert "| `stalled_request_timeout_ms` | `30s` | 100ms to 1d | Time after" in page
    assert "| `shutdown_grace_ms` | `10s` | 0 to 1h |" in page
    assert "| `node_id` | `1` | 1 to 2147483647 |" in page
    assert "| `log_level` | `info` | debug, info, warning, error |" in page
    assert "| `durability` | `fsync` | fsync, replicated |" in page


def test_the_page_of_metrics_is_as_the_catalogs() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")

    assert page == metrics_docs.describe(), "run: python -m tools.metrics_docs > docs/metrics.md"


def test_every_metric_has_a_row() -> None:
    row = r"^\| `(\w+)` \| (?:counter|gauge|histogram) \| [`\w, ]* \| [\w`].+\. \|$"
    rows = re.findall(row, metrics_docs.describe(), re.MULTILINE)

    catalogs = (BROKER_SECTIONS, CLIENT_SECTIONS, SQS_SECTIONS)
    sections = [each for catalog in catalogs for each in catalog.values()]
    assert rows == [metric.name for section in sections for metric in section]
    assert len(set(rows)) == len(rows)
