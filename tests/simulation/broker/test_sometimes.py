"""Tests of probes and of the rare branches that they count."""

import re
from collections import Counter

import pytest

from tests.paths import ROOT
from tests.simulation.broker.sometimes import FORCED, PROBES, Sometimes
from tests.simulation.queues.sometimes import FORCED as QUEUES_FORCED
from tests.simulation.transactions.sometimes import FORCED as TRANSACTIONS_FORCED

PACKAGES = ("broker", "client", "coordinator", "isr", "logstore", "wire")
SITE = re.compile(r'buggify\("([^"]+)"\)')


def test_every_buggify_site_is_a_probe_and_unique() -> None:
    sites = Counter(
        site
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for site in SITE.findall(path.read_text(encoding="utf-8"))
    )

    assert sites == dict.fromkeys((*FORCED, *QUEUES_FORCED, *TRANSACTIONS_FORCED), 1)
    assert {f"forced: {site}" for site in FORCED} <= PROBES.keys()


def test_a_buggify_branch_is_counted() -> None:
    sometimes = Sometimes()

    sometimes.forced("roll early")
    sometimes.forced("roll early")

    assert sometimes.counts == {"forced: roll early": 2}


def test_an_unknown_probe_is_an_error() -> None:
    with pytest.raises(AssertionError, match="there is no probe 'forced: nothing'"):
        Sometimes().forced("nothing")


def test_only_a_start_after_a_crash_counts_a_tail() -> None:
    sometimes = Sometimes()
    clean, torn = {"truncated_bytes": 0}, {"truncated_bytes": 7}
    sometimes.probed("log_opened", clean)
    sometimes.probed("broker_started", {})
    sometimes.crashed()

    sometimes.probed("log_opened", clean)
    sometimes.probed("log_opened", torn)
    sometimes.probed("broker_started", {})
    sometimes.probed("log_opened", clean)

    assert sometimes.counts == {"clean tail": 1, "torn tail": 1}
