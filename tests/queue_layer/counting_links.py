"""Group links that count their lookups."""

from typing import final

from tidelog.queue_layer.collections.group_links import InMemoryGroupLinks


@final
class CountingLinks:
    """Links in memory with a count of lookups."""

    def __init__(self) -> None:
        self.links = InMemoryGroupLinks()
        self.count = 0

    def get(self, offset: int) -> int:
        self.count += 1
        return self.links.get(offset)

    def put(self, offset: int, link: int) -> None:
        self.count += 1
        self.links.put(offset, link)

    def drop_below(self, offset: int) -> None:
        self.links.drop_below(offset)
