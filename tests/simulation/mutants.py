"""Planted bugs: what the swarm must catch, to show that it would."""

from typing import Final

from tests.simulation.mutations import broker as planted_in_broker
from tests.simulation.mutations import client as planted_in_client
from tests.simulation.mutations import logstore as planted_in_logstore

MUTANTS: Final = (
    *planted_in_logstore.MUTANTS,
    *planted_in_broker.MUTANTS,
    *planted_in_client.MUTANTS,
)
"""All planted bugs."""
