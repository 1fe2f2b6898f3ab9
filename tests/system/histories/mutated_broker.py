"""`tidelog serve` with one of the simulator's mutations, as a control of the histories.

python -m tests.system.histories.mutated_broker NAME serve ...
"""

import sys

from tests.simulation.mutations.registry import find_mutation
from tidelog.cli.main import main


def mutated_program(name: str) -> list[str]:
    """Return the command for a broker with this mutation.

    Raises:
        KeyError: There is no such mutation.
    """
    return [sys.executable, "-m", "tests.system.histories.mutated_broker", find_mutation(name).name]


if __name__ == "__main__":
    with find_mutation(sys.argv.pop(1)).applied():
        main()
