"""`boyd replay`, `boyd cases` and `boyd test`: what a changed agent would have decided."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from boyd.embedded.state_folder import with_archive
from boyd.errors import ConfigError
from boyd.models import LoopResult
from boyd.models.loop import HistoryFilter
from boyd.models.tape import Difference, Fate, PublishedReplay, ReplayReport
from boyd.settings.process_settings import Settings
from boyd.text.formatting import counted
from boyd_cli import completion, output
from boyd_cli.api_access import Api, actor, open_store
from boyd_cli.commands.history_command import check_iteration
from boyd_cli.options import (
    api_options,
    not_empty,
    object_option,
    output_option,
    period_options,
    recording_options,
    settings_options,
)
from boyd_cli.output import label, prose, whole
from boyd_cli.views import iteration_view

if TYPE_CHECKING:
    from boyd.replay.recordings import Expectation, Recordings
    from boyd.replay.replay_run import ShadowPool
    from boyd.replay.shadow_process import ShadowTask


#: The exit statuses when something would run without a person that did not then, and for every
#: other difference that --fail-on names.
WIDER, DIFFERENT = 2, 6
#: The differences by their names in --fail-on.
_DIFFERENCES: Mapping[str, Difference] = {
    "automatic": "newly automatic",
    "asked": "newly asked",
    "refused": "newly refused",
    "approval": "other approval",
    "params": "other params",
    "missing": "missing action",
    "less": "acts less",
    "flipped": "flipped",
    "error": "error",
    "cannot-tell": "cannot tell",
}
_STRICT = "automatic,refused,params,less,error,cannot-tell>1%"
#: A name of --fail-on, and the percentage of iterations that may be different.
_LIMIT = re.compile(r"([a-z-]+)(?:>([0-9]{1,3}(?:\.[0-9]{1,6})?)%)?")
#: Numbers of iterations: 12, or 12-40.
_RANGE = re.compile(r"([1-9][0-9]{0,15})(?:-([1-9][0-9]{0,15}))?")
#: The folder of replays in the state folder.
FOLDER = "replay"


def _parse_ranges(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> Callable[[int], bool]:
    """Parse numbers and ranges of them."""
    if value is None:
        return lambda _number: True
    matches = [_RANGE.fullmatch(part.strip()) for part in value.split(",")]
    if not all(matches):
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 12,40-57")
    ranges = [(int(match[1]), int(match[2] or match[1])) for match in matches if match]
    return lambda number: any(first <= number <= last for first, last in ranges)


@dataclass(frozen=True)
class FailureLimit:
    """A difference that fails a replay if more than *percent* of the iterations have it."""

    difference: Difference
    percent: float = 0.0

    def is_exceeded(self, report: ReplayReport) -> bool:
        """Report whether the replay fails by it."""
        return report.count(self.difference) * 100 > self.percent * report.iterations


def _parse_limits(
    _ctx: click.Context, _param: click.Parameter, value: str
) -> Sequence[FailureLimit]:
    """Parse names of differences, each with a share if some are allowed."""
    if value.strip() == "none":
        return []
    return [_parse_limit(part.strip()) for part in value.split(",")]


def _parse_limit(text: str) -> FailureLimit:
    match = _LIMIT.fullmatch(text)
    if match is None or match[1] not in _DIFFERENCES:
        names = ", ".join(_DIFFERENCES)
        raise click.BadParameter(
            f"{text!r} is no difference: choose from {names}, or none; each may have a share of "
            "iterations that is allowed, such as cannot-tell>1%"
        )
    return FailureLimit(_DIFFERENCES[match[1]], float(match[2] or 0))


@click.command()
@click.option(
    "--agent", "reference", metavar="FILE|MODULE:NAME", help="The agent to replay, as for check."
)
@click.option(
    "--plugins",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder of plugins in place of that of the agent file.",
)
@click.option(
    "--iterations",
    "wanted",
    callback=_parse_ranges,
    metavar="LIST",
    help="Only these iterations, such as 12,40-57.",
)
@recording_options(jobs="Processes that replay side by side.")
@click.option(
    "--fail-on",
    "limits",
    default=_STRICT,
    show_default=True,
    callback=_parse_limits,
    metavar="LIST",
    help="The differences that fail it, or none; NAME>N% allows some in N percent of iterations.",
)
@click.option(
    "--closed-loop",
    is_flag=True,
    help="Go on from the state that the changed agent leaves itself, in one process.",
)
@click.option("--publish", is_flag=True, help="Also show the report in the console.")
@output_option
@settings_options
@period_options
def replay(
    settings: Settings,
    reference: str | None,
    plugins: Path | None,
    jobs: int,
    publish: bool,
    form: str,
    **source: Any,
) -> None:
    """Show what a changed agent would have decided on recorded iterations.

    Runs orient, decide and the gate again, in processes that cannot act, write or reach the
    network. Exits with 2 if something would run without a person that did not then, and with 6 for
    any other difference that --fail-on names.
    """
    limits: Sequence[FailureLimit] = source.pop("limits")
    if source["records"] and source["observations"]:
        raise click.UsageError("--records and --observations exclude each other")
    agent = choose_reference(settings, reference)
    task = shadow_task(agent, plugins, known=source["observations"] is None).patched(
        {"closed_loop": source.pop("closed_loop")}
    )
    # It loads SQLAlchemy.
    from boyd.replay.replay_run import ShadowPool

    with ShadowPool(task, jobs) as pool:
        report = _replay(settings, pool, _Source(**source))
    if publish:
        store = open_store(settings)
        document = PublishedReplay.of(report, actor().principal, store.clock.now())
        store.agent(report.agent_id).latest_replay.publish(document)
    if not output.print_data(form, report):
        iteration_view.show_report(report)
    _fail_on(limits, report)


def _fail_on(limits: Sequence[FailureLimit], report: ReplayReport) -> None:
    """End the command with the status for the limits that *report* exceeds, and name them."""
    exceeded = [limit for limit in limits if limit.is_exceeded(report)]
    for limit in exceeded:
        allowed = f", more than {limit.percent:g}%" if limit.percent else ""
        iterations = counted(report.iterations, "iteration")
        count = report.count(limit.difference)
        output.note(f"fails: {limit.difference} in {count} of {iterations}{allowed}")
    if any(limit.difference == "newly automatic" for limit in exceeded):
        raise click.exceptions.Exit(WIDER)
    if exceeded:
        raise click.exceptions.Exit(DIFFERENT)


@dataclass(frozen=True)
class _Source:
    """The options that say what is replayed."""

    since: datetime | None
    until: datetime | None
    wanted: Callable[[int], bool]
    records: Path | None
    observations: Path | None


def _replay(settings: Settings, pool: ShadowPool, source: _Source) -> ReplayReport:
    from boyd.export.archive.access import ArchiveAccess
    from boyd.export.archive.merged_work import MergedWork
    from boyd.replay.recordings import FileOfRecords, KeptIterations, ObservationFile
    from boyd.replay.replay_run import with_endings

    agent_id = pool.hello.agent_id
    if source.observations:
        return _run(settings, pool, ObservationFile(source.observations, agent_id))
    if source.records:
        return _run(settings, pool, FileOfRecords(source.records, source.wanted))
    settings = with_archive(settings)
    store = open_store(settings).agent(agent_id)
    archive = ArchiveAccess(settings.archive_url)
    query = HistoryFilter(since=source.since, until=source.until)
    iterations = KeptIterations(store, archive, query, source.wanted)
    report = with_endings(_run(settings, pool, iterations), MergedWork(store, archive))
    archive.close()
    return report


def _run(settings: Settings, pool: ShadowPool, recordings: Recordings) -> ReplayReport:
    from boyd.replay.replay_run import replay

    folder = settings.state_dir / FOLDER
    if not sys.stderr.isatty():
        return replay(pool, recordings, folder, lambda _count: None)
    with click.progressbar(length=recordings.count, file=sys.stderr) as bar:
        return replay(pool, recordings, folder, bar.update)


def choose_reference(settings: Settings, reference: str | None) -> str:
    """The agent to load: *reference*, the setting `agents`, or agent.toml here.

    Raises:
        ConfigError: there is none, or several.
    """
    here = ("agent.toml",) if Path("agent.toml").exists() else ()
    references = (reference,) if reference else settings.agents or here
    if len(references) != 1:
        raise ConfigError("name one agent file with --agent, or run this beside agent.toml")
    return references[0]


def shadow_task(reference: str, plugins: Path | None, *, known: bool = True) -> ShadowTask:
    """The task of a shadow of an agent."""
    from boyd.replay.shadow_process import ShadowTask

    return ShadowTask(
        agent=reference,
        plugins=plugins.absolute() if plugins else None,
        paths=sys.path,
        known=known,
    )


@click.group()
def cases() -> None:
    """Keep recorded iterations as regression cases of an agent."""


@cases.command()
@click.argument(
    "iteration",
    callback=check_iteration,
    shell_complete=completion.completer(completion.iterations),
)
@click.option("--expect", metavar="ACTION", callback=not_empty, help="The right action, or no-op.")
@object_option("--params", help="Its params; absent: any.")
@click.option("--fate", type=click.Choice(get_args(Fate)), help="What the gate should make of it.")
@click.option("--name", callback=not_empty, help="The case's name; default: number and action.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("cases"),
    show_default=True,
    help="The folder of cases, beside the agent file.",
)
@api_options
def add(
    api: Api,
    iteration: str,
    expect: str | None,
    params: Any,
    fate: Fate | None,
    name: str | None,
    folder: Path,
) -> None:
    """Make a case of ITERATION: it should be decided as it was, or as --expect says."""
    from boyd.replay.recordings import Expectation, ReplayCase, write_case

    if not expect and (params or fate):
        raise click.UsageError("--params and --fate need --expect")
    record = api.agent.get(f"/loop/history/{iteration}", LoopResult)
    if expect:
        expectation = Expectation(action=expect, params=params or None, fate=fate)
    else:
        expectation = _as_was(record)
    name = name or f"{iteration}-{expectation.action.replace(':', '-')}"
    path = write_case(folder, name, ReplayCase(expect=expectation, record=record))
    output.say(f"wrote {path}; `boyd test` replays it")


def _as_was(record: LoopResult) -> Expectation:
    from boyd.replay.differences import course_of
    from boyd.replay.recordings import Expectation
    from boyd.replay.shadow import CannotTell

    try:
        return Expectation.of(course_of(None, record))
    except CannotTell as unknown:
        output.stop(output.FAILED, f"{unknown}; say what is right with --expect ACTION")


@click.command()
@click.argument("agent", required=False)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The folder of cases; default: `cases` beside the agent file.",
)
@output_option
@settings_options
def test(settings: Settings, agent: str | None, folder: Path | None, form: str) -> None:
    """Replay all cases of an agent; fails if one is decided otherwise.

    AGENT is an agent file or module:agent; default: the setting `agents`, or agent.toml here.
    """
    from boyd.replay.recordings import CaseResult, folder_of, read_cases
    from boyd.replay.replay_run import ShadowPool

    reference = choose_reference(settings, agent)
    where = folder or folder_of(reference)
    cases_by_name = read_cases(where)
    if not cases_by_name:
        output.stop(output.FAILED, f"no cases in {where}: make one with `boyd cases add`")
    with ShadowPool(shadow_task(reference, None), 1) as pool:
        batches = [[case.record.to_json() for case in cases_by_name.values()]]
        judgements = list(chain.from_iterable(pool.judge(batches)))
    pairs = zip(cases_by_name.items(), judgements, strict=True)
    results = [CaseResult.of(name, case, judgement) for (name, case), judgement in pairs]
    if not output.print_data(form, results):
        rows = [[row.case, _verdict(row.mistakes), "\n".join(row.mistakes)] for row in results]
        output.print_table([label("case", least=20), whole("result"), prose("why")], rows)
    output.fail_if(any(row.mistakes for row in results))


def _verdict(mistakes: list[str]) -> str:
    return "failed" if mistakes else "ok"
