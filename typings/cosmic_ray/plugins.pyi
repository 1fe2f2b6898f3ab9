from collections.abc import Iterable

from cosmic_ray.ast import Node

class Operator:
    def mutation_positions(
        self, node: Node
    ) -> Iterable[tuple[tuple[int, int], tuple[int, int]]]: ...

def operator_names() -> tuple[str, ...]: ...
def get_operator(name: str) -> type[Operator]: ...
