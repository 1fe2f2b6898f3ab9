from collections.abc import Iterator

class Node:
    type: str
    parent: Node | None

def get_ast(source: str) -> Node: ...
def ast_nodes(node: Node) -> Iterator[Node]: ...
