"""Every event of the log has a heading in docs/operations.md, so that an alert can link to it."""

import re

from tests.log_events import event_names
from tests.paths import ROOT


def headings() -> list[str]:
    page = (ROOT / "docs/operations.md").read_text("utf-8")
    section = page[page.index("## Log lines") : page.index("## Look into the files")]
    return re.findall(r"^### ([\w.]+)$", section, re.MULTILINE)


def test_each_event_has_a_heading_and_each_heading_an_event() -> None:
    names, found = event_names(), headings()

    assert sorted(names - set(found)) == [], "events without a heading"
    assert sorted(set(found) - names) == [], "headings without an event"
    assert len(found) == len(set(found)), "a heading stands once"
    assert len(names) > 100


def test_names_of_passed_on_events_are_found() -> None:
    assert event_names() >= {
        "connection_refused_again",
        "isr_shrunk",
        "loss_not_reported",
        "open_files_limit_is_low",
        "records_lost",
        "replica_not_truncated",
        "replica_truncated",
    }
