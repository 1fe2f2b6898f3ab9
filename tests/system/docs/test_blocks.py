"""The code blocks of the tutorial, the guides and other pages run, and show what they show."""

import os
import shutil
from pathlib import Path
from typing import Final

import pytest
import trio

import tidelog
from tests.paths import ROOT
from tests.system.docs.blocks import Block, blocks_of
from tests.system.docs.page_runner import PORT_COUNT, PageRunner, free_ports, starts_a_broker

PAGES: Final = sorted(
    str(path.relative_to(ROOT))
    for pattern in (
        "docs/tutorial.md",
        "docs/howto/*.md",
        "docs/coming-from/*.md",
        "docs/access.md",
        "docs/alerts.md",
        "docs/audit.md",
        "docs/authentication.md",
        "docs/quotas.md",
        "docs/compaction.md",
        "docs/encryption.md",
        "docs/operating.md",
        "docs/operations.md",
        "docs/sqs.md",
        "docs/tls.md",
        "docs/upgrading.md",
    )
    for path in ROOT.glob(pattern)
)


async def run_page(page: str, blocks: list[Block], runner: PageRunner) -> None:
    for block in blocks:
        try:
            await runner.run(block)
        except AssertionError as error:
            pytest.fail(f"{page}, line {block.line}: {error}", pytrace=False)
    assert not runner.unused_files, "no command runs these files"


@pytest.mark.parametrize("page", PAGES)
async def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    blocks = blocks_of((ROOT / page).read_text(encoding="utf-8"))
    assert any(block.is_run for block in blocks)
    if "$ curl " in "".join(block.text for block in blocks) and shutil.which("curl") is None:
        pytest.skip("the commands of this page need curl")
    # Below the ports that the system gives to clients: one of those may have taken it meanwhile.
    first_port = free_ports(14_000 + os.getpid() % 1_000 * PORT_COUNT + PAGES.index(page) * 300)
    runner = PageRunner(tmp_path / "page", first_port)
    wanted = [block for block in blocks if not block.is_skipped]
    try:
        with trio.fail_after(250):
            if starts_a_broker(blocks):
                await run_page(page, wanted, runner)
            else:
                async with tidelog.open_broker(
                    tmp_path / "data", listen=runner.address, group_initial_rebalance_delay_ms=100
                ):
                    await run_page(page, wanted, runner)
    finally:
        with trio.CancelScope(shield=True):
            await runner.stop()
