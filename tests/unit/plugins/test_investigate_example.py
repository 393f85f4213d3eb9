"""The tools of the model of `examples/investigate`, and the replies of its script."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from boyd import Agent
from boyd.agent import load_agent
from boyd.models.investigation import Investigation, InvestigationRequest
from boyd.testing import TESTER, Lab, ScriptedModel
from plugin_kit import Rig, Site, site

EXAMPLE = Path(__file__).parents[3] / "examples" / "investigate"


def _load(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def web() -> Iterator[Site]:
    """A site at the port of the shop."""
    with site() as served:
        yield served


@pytest.fixture
def shop(web: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plugin file, with a folder of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("SHOP_PORT", web.url.rpartition(":")[2])
    module = _load(EXAMPLE / "plugins" / "shop.py", "boyd_plugin_shop", monkeypatch)
    module.STATE.mkdir()
    return module


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedModel]:
    """The model of the example."""
    module = _load(EXAMPLE / "model.py", "investigate_model", monkeypatch)
    with ScriptedModel([module.reply], forever=True) as running:
        yield running


@pytest.fixture
def dead_pid() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def use(shop: Any, tool: str, **params: Any) -> Any:
    """Call a tool."""
    rig = Rig(shop.Shop())
    part = rig.host.tools[f"shop:{tool}"]
    assert part.params is not None
    return part.call("run", params=part.params.model_validate(params), ctx=rig.ctx)


def lock_outbox(shop: Any, pid: int) -> Path:
    """A lock that names that process, and a courier who waits for it."""
    lock: Path = shop.STATE / "courier.lock"
    lock.write_text(f"{pid}\n")
    (shop.STATE / "shop.log").write_text("an order was refused\n")
    (shop.STATE / "courier.log").write_text(f"now waits for {lock}, which process {pid} holds\n")
    return lock


def test_the_agent_file_loads_and_its_model_may_use_what_the_shop_gives() -> None:
    agent = load_agent(str(EXAMPLE / "agent.toml"))
    assert {"shop:read_file", "shop:processes", "shop:health"} <= set(agent.host.tools)
    action = agent.host.actions["shop:remove_lock"]
    assert (action.tool, action.autonomy.mode) == (True, "approval-required")


def test_programs_that_are_down_are_started_one_after_the_other(shop: Any) -> None:
    rig = Rig(shop.Programs())
    decision = rig.think()
    assert decision is not None
    assert (decision.action, decision.params) == ("programs:start", {"name": "shop"})


def test_a_file_has_its_last_lines(shop: Any) -> None:
    (shop.STATE / "shop.log").write_text("".join(f"line {n}\n" for n in range(20_000)))
    assert use(shop, "read_file", path="shop.log", lines=2) == "line 19998\nline 19999\n"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link", "folder/../../secret"])
@pytest.mark.parametrize("tool", ["read_file", "list_folder"])
def test_nothing_outside_of_the_folder_can_be_read(shop: Any, path: str, tool: str) -> None:
    (shop.STATE.parent / "secret").write_text("secret")
    (shop.STATE / "link").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="is not in"):
        use(shop, tool, path=path)


def test_only_regular_files_are_read(shop: Any) -> None:
    os.mkfifo(shop.STATE / "pipe")
    with pytest.raises(ValueError, match="is no file"):
        use(shop, "read_file", path="pipe")


def test_a_folder_tells_how_much_it_holds(shop: Any) -> None:
    (shop.STATE / "outbox").mkdir()
    (shop.STATE / "outbox" / "order-1.json").write_text("tea")
    summary = use(shop, "list_folder", path="outbox")
    assert (summary["entries"], summary["bytes"], summary["newest"]) == (1, 3, ["order-1.json"])


def test_processes_are_found_by_id_and_by_command_line(shop: Any, dead_pid: int) -> None:
    mark = f"process-{uuid4().hex}"
    with subprocess.Popen([sys.executable, "-c", "input()", mark], stdin=subprocess.PIPE) as child:
        [by_id] = use(shop, "processes", pid=child.pid)
        [by_command] = use(shop, "processes", matching=mark)
    assert by_id["pid"] == by_command["pid"] == child.pid
    assert use(shop, "processes", pid=dead_pid) == []


def test_the_health_is_what_the_shop_answers(shop: Any, web: Site) -> None:
    assert use(shop, "health")["status"] == 200
    web.status = 503
    assert use(shop, "health", patience=0.2)["status"] == 503


def test_only_a_lock_whose_process_is_gone_is_removed(shop: Any, dead_pid: int) -> None:
    rig = Rig(shop.Shop())
    lock = lock_outbox(shop, dead_pid)
    params = {"path": "courier.lock", "pid": dead_pid, "reason": "it is stale"}
    assert "there is no process" in rig.act("remove_lock", params, "dry_run")
    assert lock.exists()
    rig.act("remove_lock", params)
    assert not lock.exists()


def test_a_lock_that_is_held_or_changed_hands_stays(shop: Any, dead_pid: int) -> None:
    rig = Rig(shop.Shop())
    lock = lock_outbox(shop, os.getpid())
    with pytest.raises(ValueError, match="lives"):
        rig.act("remove_lock", {"path": str(lock), "pid": os.getpid(), "reason": "?"})
    with pytest.raises(ValueError, match=f"names process {os.getpid()}"):
        rig.act("remove_lock", {"path": str(lock), "pid": dead_pid, "reason": "?"})
    with pytest.raises(ValueError, match="no lock"):
        rig.act("remove_lock", {"path": "shop.log", "pid": dead_pid, "reason": "?"})
    assert lock.exists()


def ask_to_end(shop: Any, model: ScriptedModel, question: str) -> Investigation:
    """Run an investigation to its end."""
    settings = {"base_url": f"{model.url}/v1", "model": "scripted", "profile": "execution"}
    lab = Lab(Agent("test", plugins=[shop.Shop()], llm=settings))
    id = lab.launcher.ask(InvestigationRequest(question=question), TESTER, lab.engine.retention)
    assert id
    lab.deliver()
    investigation = lab.store.investigations.get(id)
    assert investigation is not None
    return investigation


def test_the_script_finds_nothing_where_nothing_is_wrong(shop: Any, model: ScriptedModel) -> None:
    investigation = ask_to_end(shop, model, "How is the shop?")
    assert (investigation.ending, investigation.counters.tool_calls) == ("final_answer", 1)
    assert (investigation.text or "").startswith("It is well.")


def test_the_script_names_the_cause_and_does_nothing_when_only_asked_why(
    shop: Any, model: ScriptedModel, web: Site, dead_pid: int
) -> None:
    web.status = 503
    lock = lock_outbox(shop, dead_pid)
    investigation = ask_to_end(shop, model, "Why does the shop answer 503?")
    assert investigation.status == "ended"
    assert f"courier.lock was left behind by process {dead_pid}" in (investigation.text or "")
    assert f"Remove {lock}." in (investigation.text or "")


def test_the_script_asks_for_the_fix_when_it_is_to_fix_it(
    shop: Any, model: ScriptedModel, web: Site, dead_pid: int
) -> None:
    web.status = 503
    lock_outbox(shop, dead_pid)
    assert ask_to_end(shop, model, "The shop answers 503. Fix it.").status == "waiting"


def test_the_script_does_not_blame_a_lock_whose_process_lives(
    shop: Any, model: ScriptedModel, web: Site
) -> None:
    web.status = 503
    lock_outbox(shop, psutil.Process().pid)
    investigation = ask_to_end(shop, model, "The shop answers 503. Fix it.")
    assert investigation.status == "ended"
    assert (investigation.text or "").startswith("I have not found the cause.")


def test_the_script_does_not_invent_what_no_log_says(
    shop: Any, model: ScriptedModel, web: Site
) -> None:
    web.status = 503
    investigation = ask_to_end(shop, model, "The shop answers 503. Fix it.")
    assert (investigation.ending, investigation.counters.errors) == ("final_answer", 2)
    assert (investigation.text or "").startswith("I have not found the cause.")
