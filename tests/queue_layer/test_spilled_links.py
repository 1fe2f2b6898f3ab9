"""A number for each offset, in files that may rot."""

import errno
from pathlib import Path
from random import Random

import pytest

from logstore.disk import Disk
from logstore.os_disk import OsDisk
from queue_layer.delivery_order import RecordFields
from queue_layer.groups import GroupOrder
from queue_layer.next_in_group import BLOCK_OFFSETS, NO_LINK, LinksLostError
from queue_layer.spilled_links import SpilledLinks
from tests.simulation.faulty_disk import FaultyDisk

FILE = "links/00000000000000000000"
BLOCK_SIZE = 16 + 8 * BLOCK_OFFSETS


def written(disk: FaultyDisk, *, block_count: int = 3) -> SpilledLinks:
    """Return links of some blocks, the first of which is in the file only."""
    links = SpilledLinks(disk, "links", blocks_in_memory_max=1)
    for number in range(block_count):
        links.put(number * BLOCK_OFFSETS + 7, number)
    disk.open(FILE).sync()
    return links


@pytest.fixture(params=["memory", "real"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return FaultyDisk() if request.param == "memory" else OsDisk(str(tmp_path))


def test_it_is_a_map_whatever_is_in_memory(disk: Disk) -> None:
    random, model = Random(1), dict[int, int]()
    links = SpilledLinks(disk, "links", blocks_in_memory_max=2)
    for number in range(2_000):
        offset = random.randrange(6) * 200 * BLOCK_OFFSETS + random.randrange(BLOCK_OFFSETS)
        links.put(offset, number)
        model[offset] = number

        offset = random.choice(list(model))
        assert links.get(offset) == model[offset]
        assert links.get(offset + 7 * BLOCK_OFFSETS) == NO_LINK
        assert links.blocks_in_memory <= 2
    links.close()


def test_an_order_is_the_same_with_links_in_files() -> None:
    random = Random(2)
    spilled = GroupOrder(0, SpilledLinks(FaultyDisk(), "links", blocks_in_memory_max=1))
    in_memory = GroupOrder(0)
    count = 3 * BLOCK_OFFSETS
    fields = [RecordFields(group=b"%d" % random.randrange(900)) for _ in range(count)]
    for order in (spilled, in_memory):
        order.came(0, count, fields)

    for _ in range(3_000):
        (first, end) = next(in_memory.candidates(1, 0))
        assert (first, end) == next(spilled.candidates(1, 0))
        for order in (spilled, in_memory):
            order.became_invisible(first, end, is_leased=True)
            order.became_done(first, end)


def test_files_of_nothing_but_what_is_done_are_removed() -> None:
    disk = FaultyDisk()
    links = SpilledLinks(disk, "links", blocks_in_memory_max=1)
    for number in (0, 255, 256, 600):
        links.put(number * BLOCK_OFFSETS, number)
    assert disk.list_directory("links") == [f"{0:020}", f"{1:020}"]

    links.drop_below(256 * BLOCK_OFFSETS - 1)
    assert len(disk.list_directory("links")) == 2
    links.drop_below(256 * BLOCK_OFFSETS)
    links.drop_below(100 * BLOCK_OFFSETS)

    assert disk.list_directory("links") == [f"{1:020}"]
    assert links.get(256 * BLOCK_OFFSETS) == 256
    assert links.get(0) == NO_LINK
    links.put(0, 1)
    assert links.get(0) == NO_LINK


def test_nothing_is_believed_of_files_that_were_there_before() -> None:
    disk = FaultyDisk()
    written(disk)
    disk = disk.kill()

    links = SpilledLinks(disk, "links")

    assert links.get(7) == NO_LINK
    assert disk.list_directory("links") == []


def test_cleared_links_begin_anew() -> None:
    links = written(FaultyDisk())
    links.drop_below(2 * BLOCK_OFFSETS)
    links.clear()

    assert links.get(7) == links.get(2 * BLOCK_OFFSETS + 7) == NO_LINK
    links.put(7, 8)
    assert links.get(7) == 8


@pytest.mark.parametrize("position", [0, 3, 4, 7, 8, 15, 16, 16 + 7 * 8, BLOCK_SIZE - 1])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_anywhere_is_noticed_and_not_believed(position: int, bit: int) -> None:
    disk = FaultyDisk()
    links = written(disk)
    disk.flip_bit(FILE, position, bit)

    with pytest.raises(LinksLostError, match="block 0 is not what was written"):
        links.get(7)
    with pytest.raises(LinksLostError):
        links.put(8, 1)


@pytest.mark.parametrize("size", [0, 15, 16, BLOCK_SIZE - 1])
def test_a_file_that_lost_its_end_is_noticed(size: int) -> None:
    disk = FaultyDisk()
    links = written(disk)
    disk.cut_file(FILE, size)

    with pytest.raises(LinksLostError):
        links.get(7)


def test_a_whole_block_in_the_place_of_another_is_noticed() -> None:
    disk = FaultyDisk()
    links = written(disk)
    disk.damage(FILE, 0, disk.visible_bytes(FILE)[BLOCK_SIZE : 2 * BLOCK_SIZE])

    with pytest.raises(LinksLostError):
        links.get(7)


def test_a_disk_that_does_not_read_has_lost_the_links() -> None:
    disk = FaultyDisk()
    links = written(disk)
    disk.fail("read_at", error_number=errno.EIO)

    with pytest.raises(LinksLostError, match="cannot be read"):
        links.get(7)


def test_links_that_were_lost_are_made_again_from_the_log() -> None:
    disk = FaultyDisk()
    order = GroupOrder(0, SpilledLinks(disk, "links", blocks_in_memory_max=1))
    fields = [RecordFields(group=b"a"), RecordFields(group=b"b")] * BLOCK_OFFSETS
    order.came(0, len(fields), fields)
    disk.open(FILE).sync()
    disk.flip_bit(FILE, 100, 0)
    with pytest.raises(LinksLostError):
        order.became_done(0, 1)

    again = GroupOrder(0, SpilledLinks(disk, "links", blocks_in_memory_max=1))
    again.came(0, len(fields), fields)
    again.became_done(0, 1)

    assert list(again.candidates(2, 0))[:2] == [(2, 3), (4, 5)]


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
def test_what_cannot_be_written_stays_in_memory(error_number: int) -> None:
    disk = FaultyDisk()
    links = SpilledLinks(disk, "links", blocks_in_memory_max=1)
    disk.fail("write_at", error_number=error_number, count=5)
    for number in range(4):
        links.put(number * BLOCK_OFFSETS, number)

    assert [links.get(number * BLOCK_OFFSETS) for number in range(4)] == [0, 1, 2, 3]
    for number in range(4, 9):
        links.put(number * BLOCK_OFFSETS, number)
    assert links.blocks_in_memory == 1
    assert [links.get(number * BLOCK_OFFSETS) for number in range(9)] == list(range(9))
