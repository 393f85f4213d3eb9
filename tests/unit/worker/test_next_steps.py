"""Steps that a worker takes without their message."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from boyd.settings.process_settings import Settings, WorkerSettings
from boyd_worker.agent_host import AgentHost


@pytest.mark.parametrize(("pool", "may"), [("threads", True), ("prefork", False)])
def test_threads_go_on_with_the_next_step_until_their_worker_stops(
    tmp_path: Path, pool: Literal["threads", "prefork"], may: bool
) -> None:
    file = tmp_path / "a.toml"
    file.write_text('id = "a"\n[[plugins]]\nuse = "example"\n')
    settings = Settings(
        redis_url="redis://127.0.0.1:1/0", agents=(str(file),), worker=WorkerSettings(pool=pool)
    )
    host = AgentHost(settings, "worker", ["loop"])
    may_take = host.engines["a"].settings.may_take

    assert (may_take("loop"), may_take("act")) == (may, False)
    host.is_draining = True
    assert not may_take("loop")
