"""As in the tests of the broker: a defect that nothing expects fails the test."""

from tests.broker.conftest import defects, no_defect_is_overlooked

__all__ = ["defects", "no_defect_is_overlooked"]
