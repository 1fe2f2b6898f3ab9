"""The part of xdist.scheduler that is used here; the package has no types of its own."""

import pytest

class LoadScopeScheduling:
    def __init__(self, config: pytest.Config, log: object) -> None: ...
    def _split_scope(self, nodeid: str) -> str: ...
