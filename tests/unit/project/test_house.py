"""The rules of the house that a machine can check: names, docstrings, imports and sizes."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "boyd": ROOT / "shared" / "boyd",
    "boyd_cli": ROOT / "shared" / "boyd_cli",
    "boyd_connectors": ROOT / "shared" / "boyd_connectors",
    "boyd_goals": ROOT / "shared" / "boyd_goals",
    "boyd_proof": ROOT / "shared" / "boyd_proof",
    "boyd_secrets": ROOT / "shared" / "boyd_secrets",
    "boyd_slack": ROOT / "shared" / "boyd_slack",
    "boyd_worker": ROOT / "worker" / "boyd_worker",
    "boyd_api": ROOT / "api" / "boyd_api",
}
#: Module names that occur more than once, and why.
SHARED_MODULE_NAMES = {
    "app": "what `celery -A boyd_worker.app` and the servers of the API load",
    "plugin": "the entry module of every plugin that has a folder",
}
#: Public class names that occur more than once, and why.
SHARED_CLASS_NAMES: dict[str, str] = {}
#: A reference to a rule that nothing in the repository explains; docs/reliability.md has P1 to P18.
RULE_ID = re.compile(r"\((?:seed \d|(?:and |see )?[A-OQ-Z]\d{1,2}\b)")
RIDDLE = re.compile(r"(What|Who|Whom|How|Whether|Where|Why|Which)\b")
LONGEST_FUNCTION = 50
#: The most lines of Python and Lua in the kernel, and in the library with later features.
KERNEL = {
    "phases, the plugins' side, the loop and its jobs": 15_000,
    "secrets by reference: checked and read before the claim, and passed to one call": 121,
    "notifications of outcomes, escalations and acknowledgements": 40,
    "steps of procedures over many targets: the last data of observers, plans with a list": 55,
    "rights per action, votes of revoked keys, and no approval while frozen": 70,
    "heartbeats that say when to read who is alive": 27,
    "processes that end when a plugin has broken what all their code shares": 77,
    "ticks of each agent at times of its own": 3,
    "hosts whose clock differs from that of Redis, in heartbeats": 11,
    "a rollback after a second harm, which is checked too": 6,
    "a step that was done by the last worker of a procedure that is given up": 2,
    "Celery's own tools: the app they load, what workers answer, events within bounds": 103,
    "what plugins raise, in checks of params and while loading; logins of their requests": 68,
    "steps that a worker takes without their message": 51,
    "denials that hold, and outcomes that overtake messages about them": 28,
    "a clock of Redis that steps back: pauses, runs that lie too far ahead, durations": 5,
    "results of actions that are kept, and leases renewed, when Redis was away": 21,
    "procedures that are stopped until a person resumes or cancels them": 4,
    "an approved procedure, which has not succeeded when it has been started": 13,
    "defaults that are approved as they are shown": 26,
    "jobs that workers only hand over to each other": 34,
    "a name for jobs that go on at once, on any worker of a queue": 6,
    "a worker that enters the next phase as it leaves the last": 120,
    "actions that a worker lacks, which are left to others": 76,
    "harm that stands if no later check can tell": 9,
    "actions that are refused after Redis may have forgotten that they were executed": 13,
    "answers of plugins without end, and slips that errors name": 48,
    "answers of plugins that are read for what they hold, within their time": 74,
    "observations without a time, which bear that of Redis": 9,
    "errors of a job, counted in a row, and of one item of a sweep": 47,
    "notices of verifications and procedures, of which each may fail alone": 30,
    "a worker of several brokers: signals while a process ends, orphans that it adopts": 9,
    "the archive and the export of traces in the process of beat": 12,
    "pools that end their idle processes, and fork them while no thread has a lock": 21,
    "answers that came before anybody waited for them": 1,
    "recipients and playbooks of plugins, of which no endless list is read": 6,
    "observations that were sent in the name of a plugin, which nobody takes for its own": 21,
    "an intake without room, which raises as every full queue does": 10,
    "cases that wait once people have approved their action": 39,
    "requests to act, attempts, proposals and the tape of a phase in modules of their own": 98,
}
LIBRARY = {
    "the library without its guests": 66_000,
    "symptoms of a target that take turns, for which an action is held": 33,
    "cases that wait once people have approved their action": 128,
    "approvals that expire beside one that was overwritten": 9,
    "answers of plugins that are read for what they hold, and evidence of any kind": 81,
    "recipients and playbooks of plugins, of which no endless list is read": 7,
    "secrets by reference: what they name, who may use which, and masks of their values": 640,
    "the plugins baseline and likely-causes, which nothing in the kernel imports": 1_900,
    "endpoints that were not checked, which nobody calls healthy": 20,
    "likely causes that may have changed, and those that people may have read": 70,
    "series of observed numbers, which the proof and the history of a target share": 135,
    "steps of procedures over many targets, in waves: plans, scripts, moves; alternatives": 1_275,
    "settings of installed packages": 30,
    "processes that end if their pidfile cannot be written": 9,
    "the history of a target: events, grouping, reading from Redis and archive, a report": 850,
    "scripts that read each key once, and before their first write": 55,
    "rights per action, votes of revoked keys, and no approval while frozen": 300,
    "ticks of each agent at times of its own, and heartbeats with a digest": 90,
    "hosts whose clock differs from that of Redis, in heartbeats and findings": 29,
    "another program on the port of Redis, text that UTF-8 cannot hold": 4,
    "no process that counts as dead while Redis refuses its heartbeats": 10,
    "the history of a target: anomalies whose plugin cannot look": 53,
    "the history of a target: approvals and executions of actions that name no target": 47,
    "a rollback after a second harm, which is checked too": 4,
    "targets whose workers were lost after the ledger had their outcome, or a job was left": 18,
    "a step that was done by the last worker of a procedure that is given up": 2,
    "replay: where iterators stand, on each release of Python": 6,
    "denials that hold, and outcomes that overtake messages about them": 38,
    "holds after harm, which only a success that is effective ends": 4,
    "the archive: verdicts and notices of what has ended, as soon as they come": 5,
    "replay: what plugins read by way of C, in threads and log records; two more twins": 100,
    "steps that a worker takes without their message": 40,
    "an agent's condition: what waits for an answer, and what was tried in vain": 75,
    "TLS to Redis: what has failed, and what to check": 40,
    "a clock of Redis that steps back: claims, waits, pauses too far ahead; durations": 50,
    "results of actions that are kept, and leases renewed, when Redis was away": 30,
    "a lab whose workers live, and recover what is overdue, however slow its test is": 24,
    "procedures that are stopped until a person resumes or cancels them": 109,
    "an approved procedure, which has not succeeded when it has been started": 17,
    "names of principals, groups and keys without characters that nobody sees": 31,
    "defaults that are approved as they are shown": 29,
    "jobs that workers only hand over to each other": 36,
    "a name for jobs that go on at once, on any worker of a queue": 6,
    "procedures that stop on the way back: why they failed, and what is left": 34,
    "tags in prompts that no result can forge": 10,
    "findings that carry since when they have lasted": 11,
    "a worker that enters the next phase as it leaves the last": 165,
    "actions that a worker lacks, which are left to others": 78,
    "replay: lines of a bounded length, and chance that only others use": 40,
    "replay: what code of the agent beside its plugins keeps": 32,
    "replay: constants of observers in tables, classes and helpers": 39,
    "replay: what observers name in objects, attributes, defaults and decorators": 158,
    "harm that stands if no later check can tell": 13,
    "holds that end with their symptoms, however many there are": 5,
    "answers of plugins without end, slips that errors name, times that no clock can add": 73,
    "an archive whose file or tables are replaced while it runs, damaged records": 31,
    "an archive that continues where its database was lost, and counts what it has copied": 28,
    "actions that are refused after Redis may have forgotten that they were executed": 27,
    "URLs that are checked without an HTTP client": 8,
    "observations without a time, which bear that of Redis": 9,
    "an option of a Redis URL that does not exist, by its name": 2,
    "steps and targets of procedures that are given up, or whose worker was lost": 48,
    "moves of procedures: forward, back, and interruptions, in modules of their own": 160,
    "errors of a job, counted in a row, and of one item of a sweep": 48,
    "notices of verifications and procedures, of which each may fail alone": 33,
    "the archive and the export of traces in the process of beat": 28,
    "pools that end their idle processes": 3,
    "observations that were sent in the name of a plugin, which nobody takes for its own": 32,
    "an intake without room, which raises as every full queue does": 10,
    "commands whose output was cut off, and those that were out of time": 12,
    "a revision of MCP that a server says it speaks": 7,
    "requests to act, attempts, proposals and the tape of a phase in modules of their own": 101,
    "incidents that are learned although their folder cannot be written": 8,
    "connections of a sandbox that are closed when they have ended": 10,
    "answers of a sandbox that are too long": 2,
    "servers of a new cluster that do not answer in time": 3,
    "archive and traces whose announcement is unreadable or old": 25,
    "an export of traces that another process has taken over": 4,
    "means of sandboxes that are tried again after a problem": 14,
}
#: The most modules in all packages; a feature that needs more adds a line that names it.
MODULES = {
    "programs in any language: the plugin, one call of a program, parameters by a schema": 3,
    "secrets by reference: references, who may use which, and their providers": 7,
    "the layout of four packages": 385,
    "criteria of goals: CEL, and statements that are compared word by word": 2,
    "cases that wait before an action, and the calls that a grant covers": 4,
    "likely causes: episodes, dependencies, ranking, outcomes, calibration, wording, the plugin": 7,
    "replay: digests of observers, and a watch on what plugins read of the world": 2,
    "replay: the past of a changed agent, carried from iteration to iteration": 1,
    "proof: labels, alarms and their scores, sweeps, a command, and a page with a plot": 14,
    "the condition of an agent in one word, for the console, the command line and the API": 1,
    "replay: what plugins keep in their process": 1,
    "the plugin baseline: measurements, learners, the memory of series, anomalies": 6,
    "the outcome of an approval, told and acknowledged; rotas": 6,
    "an inbox of thousands of approvals: what lists need of each, and filters": 2,
    "plots over time, which the proof and the history of a target share": 1,
    "steps of procedures over many targets: their states, and what moves them": 2,
    "moves of procedures: forward, back, interruptions, and the record that they change": 4,
    "Slack: the plugin, messages, calls, answers, settings, accounts, their page and command": 8,
    "the history of a target: events, grouping, reading, a report, routes, a page, a command": 9,
    "the app that Celery's own tools load": 1,
    "rights per action: their texts, and the route that explains them": 2,
    "a demo without a clone": 1,
    "events in words, which `boyd up`, `boyd status` and `boyd events` share": 1,
    "the request of a callback, so that the HTTP client is loaded with the first one": 1,
    "upgrades: the command that says whether and how": 1,
    "a worker that enters the next phase as it leaves the last": 1,
    "URLs that are checked without an HTTP client": 1,
    "requests to act, attempts, proposals and the tape of a phase": 4,
}
#: What an iteration goes through: phases, the plugins' side, the loop and its jobs, messages, and
#: the nouns of the store that the loop and its actions read and write.
KERNEL_FOLDERS = ("phases", "plugin", "messaging", "runtime", "runtime/jobs", "runtime/approvals")
KERNEL_NOUNS = {
    *("agent_store", "deployment_store", "keys", "hashes", "timing", "loop_control", "observers"),
    *("iterations", "iteration_record", "history", "executions", "in_flight", "holds", "budgets"),
    *("approvals", "jobs", "throttle", "fleet", "phase_entries"),
}


@cache
def modules() -> list[tuple[Path, ast.Module]]:
    paths = [path for folder in PACKAGES.values() for path in sorted(folder.rglob("*.py"))]
    return [(path, ast.parse(path.read_text())) for path in paths]


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_no_module_name_occurs_twice() -> None:
    names = Counter(path.stem for path, _ in modules() if not path.stem.startswith("__"))
    repeated = {name for name, times in names.items() if times > 1}
    assert repeated == set(SHARED_MODULE_NAMES)


def test_no_public_class_name_occurs_twice() -> None:
    places = defaultdict(list)
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(place(path, node.lineno))
    repeated = {name: uses for name, uses in places.items() if len(uses) > 1}
    assert {name: repeated[name] for name in repeated if name not in SHARED_CLASS_NAMES} == {}
    assert set(SHARED_CLASS_NAMES) <= set(repeated)


def test_docstrings_name_or_command_and_ask_no_riddles() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    riddles = [
        place(path, getattr(node, "lineno", 1))
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and RIDDLE.match(ast.get_docstring(node) or "")
    ]
    assert riddles == []


@pytest.mark.parametrize("folder", ["shared", "worker", "api", "tests", "examples", "docs"])
def test_nothing_cites_a_rule_that_the_repository_does_not_hold(folder: str) -> None:
    cited = [
        place(path, number)
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".lua", ".md"} and path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if RULE_ID.search(line)
    ]
    assert cited == []


def test_no_function_is_longer_than_a_page() -> None:
    long = [
        place(path, node.lineno)
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and (node.end_lineno or 0) - node.body[0].lineno >= LONGEST_FUNCTION
    ]
    assert long == []


def lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_the_library_and_its_kernel_stay_small() -> None:
    boyd = PACKAGES["boyd"]
    nouns = {boyd / "store" / f"{noun}.py" for noun in KERNEL_NOUNS}
    kernel = [path for folder in KERNEL_FOLDERS for path in (boyd / folder).glob("*.py")]
    kernel += [*nouns, *PACKAGES["boyd_worker"].glob("*.py")]

    assert lines([*boyd.rglob("*.py"), *boyd.rglob("*.lua")]) <= sum(LIBRARY.values())
    assert lines(kernel) <= sum(KERNEL.values())


def test_few_modules_answer_whole_questions() -> None:
    names = [path for path, _ in modules() if path.name != "__init__.py"]

    assert len(names) <= sum(MODULES.values())


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    # A package is loaded before its modules in any case.
    imports = {
        name: {
            imported
            for imported in graph.find_modules_directly_imported_by(name)
            if not name.startswith(f"{imported}.")
        }
        for name in graph.modules
    }
    while leaves := {name for name, imported in imports.items() if not imported & imports.keys()}:
        imports = {name: imported for name, imported in imports.items() if name not in leaves}
    assert imports == {}


def test_every_kit_has_a_line_for_contributors() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Kits")[1]
    kits = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)

    assert sorted(kits) == [path.stem for path in sorted((ROOT / "tests" / "kits").glob("*.py"))]


def test_unit_tests_are_in_the_folder_of_their_package() -> None:
    unit = ROOT / "tests" / "unit"
    assert not list(unit.glob("test_*.py"))
    packages = {
        *(path.name for path in (ROOT / "shared" / "boyd").iterdir()),
        *("api", "cli", "connectors", "console", "goals", "proof", "secrets", "slack", "worker"),
        *("deploy", "project"),
    }
    assert {path.parent.name for path in unit.rglob("test_*.py")} <= packages
