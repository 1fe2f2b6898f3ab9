"""Planted bugs: what the swarm must catch, to show that it would."""

from typing import Final

from tests.simulation import planted_in_broker, planted_in_client, planted_in_logstore

MUTANTS: Final = (
    *planted_in_logstore.MUTANTS,
    *planted_in_broker.MUTANTS,
    *planted_in_client.MUTANTS,
)
"""All planted bugs."""
