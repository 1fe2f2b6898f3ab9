"""Bugs to be planted where queues show them."""

from typing import Final

from tests.simulation.mutant import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = ()
"""All planted bugs."""
