"""The page of guarantees names tests; they must be there."""

import re

from tests.paths import ROOT


def test_every_test_that_the_guarantees_name_is_there() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }

    named = set(re.findall(r"`(test_\w+)`", page))

    assert len(named) > 20
    assert named <= tests, f"not there: {sorted(named - tests)}"
