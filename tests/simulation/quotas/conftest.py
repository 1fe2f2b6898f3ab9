"""Fixtures as in the tests of the broker: an unexpected defect fails the test."""

from tests.broker.conftest import defects, no_defect_is_overlooked

__all__ = ["defects", "no_defect_is_overlooked"]
