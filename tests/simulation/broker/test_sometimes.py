"""What a swarm must reach, and which rare branches there are to be reached."""

import re
from collections import Counter

import pytest

from tests.paths import ROOT
from tests.simulation.broker.sometimes import FORCED, PROBES, Sometimes
from tests.simulation.queues.sometimes import FORCED as QUEUES_FORCED

PACKAGES = ("broker", "client", "coordinator", "isr", "logstore", "wire")
SITE = re.compile(r'buggify\("([^"]+)"\)')


def test_every_rare_branch_in_the_code_is_a_probe_and_stands_in_one_place() -> None:
    sites = Counter(
        site
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for site in SITE.findall(path.read_text(encoding="utf-8"))
    )

    assert sites == dict.fromkeys((*FORCED, *QUEUES_FORCED), 1)
    assert {f"forced: {site}" for site in FORCED} <= PROBES.keys()


def test_a_branch_that_is_taken_is_counted() -> None:
    sometimes = Sometimes()

    sometimes.forced("roll early")
    sometimes.forced("roll early")

    assert sometimes.counts == {"forced: roll early": 2}


def test_what_is_no_probe_cannot_be_reached() -> None:
    with pytest.raises(AssertionError, match="there is no probe 'forced: nothing'"):
        Sometimes().forced("nothing")


def test_only_a_start_after_a_crash_finds_a_tail() -> None:
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
