"""`boyd prove`: scores what an agent detects against labels, and finds good values of options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from boyd.agent import Agent, load_agent
from boyd.embedded.state_folder import with_archive
from boyd.errors import BoydError, ConfigError
from boyd.models.loop import HistoryFilter
from boyd.settings.process_settings import Settings
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.api_access import actor, open_store
from boyd_cli.commands.replay_commands import choose_reference, shadow_task
from boyd_cli.options import (
    Number,
    duration_option,
    not_empty,
    output_option,
    period_options,
    recording_options,
    settings_options,
)
from boyd_proof.proof_report import Label, ProofReport, PublishedProof, Sweep, SweepPoint
from boyd_proof.swept_option import SweptOption, parse_sweep

if TYPE_CHECKING:
    from boyd.export.archive.merged_work import MergedWork
    from boyd.replay.recordings import Recordings
    from boyd_proof.proof_run import Contestant, Judge, Progress, ProofMaterial

#: The exit status if more iterations cannot be told than --cannot-tell allows.
UNCERTAIN = 6
#: In place of a file of labels: the faults that Boyd has ended, by its own verdicts.
VERIFIED = "verified"
#: The name under which the console finds the report.
REPORT = "proof"


def _sweep(_ctx: click.Context, _param: click.Parameter, value: str | None) -> SweptOption | None:
    try:
        return parse_sweep(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _zone(_ctx: click.Context, _param: click.Parameter, value: str | None) -> ZoneInfo | None:
    try:
        return ZoneInfo(value) if value is not None else None
    except (OSError, ValueError):
        raise click.BadParameter(
            f"{value!r} is no time zone: write one such as Europe/Vienna or UTC"
        ) from None


def _labels(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    path = Path(value)
    if value != VERIFIED and (path.is_dir() or not path.exists()):
        problem = f"{value!r} is a folder" if path.is_dir() else f"there is no file {value!r}"
        raise click.BadParameter(f"{problem}; `{VERIFIED}` means Boyd's verdicts")
    return value


_AGENT = "FILE|MODULE:NAME"


@click.command()
@click.option("--agent", "reference", metavar=_AGENT, help="The present agent, as for check.")
@click.option("--changed", metavar=_AGENT, help="A changed agent to put beside it.")
@click.option(
    "--labels",
    required=True,
    callback=_labels,
    metavar="FILE|verified",
    help="When something was wrong: CSV, an export of PagerDuty or Alertmanager, or verified: "
    "what Boyd's own actions have ended.",
)
@click.option(
    "--label-target",
    default="target",
    show_default=True,
    callback=not_empty,
    help="The field of labels with the resource, such as labels.instance.",
)
@click.option(
    "--label-type",
    default="type",
    show_default=True,
    callback=not_empty,
    help="The field of labels with the type of anomaly, such as labels.alertname.",
)
@click.option("--timezone", callback=_zone, help="The time zone of labels that name none.")
@duration_option(
    "--tolerance",
    default="5m",
    show_default=True,
    help="How long before a label or after its end an alarm may begin.",
)
@duration_option("--gap", help="How long no iteration may be recorded before that is a gap.")
@click.option(
    "--sweep",
    callback=_sweep,
    metavar="PLUGIN:OPTION=LOW..HIGH[:STEP]",
    help="Try an option at several values, and recommend one.",
)
@recording_options(jobs="Agents, or values, that are replayed side by side.")
@click.option(
    "--cannot-tell",
    type=Number(0, 100),
    default=1.0,
    show_default=True,
    help="Percent of iterations that need not be told; with more it fails.",
)
@click.option("--publish", is_flag=True, help="Also show the report in the console.")
@output_option
@settings_options
@period_options
def prove(
    settings: Settings,
    reference: str | None,
    changed: str | None,
    publish: bool,
    cannot_tell: float,
    form: str,
    **options: Any,
) -> None:
    """Score what an agent detects against labels: precision, recall, time to detect, pages.

    Replays recorded iterations in order, in processes that cannot act, write or reach the network.
    Exits with 1 if it cannot replay or recommends no value, and with 6 if too many iterations
    cannot be told.
    """
    request = _Request(choose_reference(settings, reference), changed, **options)
    request.check()
    report = _prove(settings, request)
    if publish:
        store = open_store(settings)
        document = PublishedProof(report=report, by=actor().principal, at=store.clock.now())
        store.agent(report.agent_id).latest_report(REPORT, PublishedProof).publish(document)
    if not output.print_data(form, report):
        from boyd_proof.proof_view import show_proof

        show_proof(report)
    _fail(report, cannot_tell)


def _fail(report: ProofReport, percent: float) -> None:
    """End the command with the status for what is uncertain."""
    unknown = {
        agent.name: max(agent.unknown_detections, agent.unknown_decisions)
        for agent in report.agents
        if agent.name != "recorded"
    }
    points = report.sweep.points if report.sweep else []
    unknown |= {f"the value {point.value:g}": point.unknown_detections for point in points}
    excessive = {
        name: count for name, count in unknown.items() if 100 * count > percent * report.iterations
    }
    for name, count in excessive.items():
        iterations = counted(report.iterations, "iteration")
        output.note(
            f"fails: {name} cannot be told in {count} of {iterations}, more than {percent:g}%"
        )
    if excessive:
        raise click.exceptions.Exit(UNCERTAIN)
    output.fail_if(report.sweep and report.sweep.refusal)


@dataclass(frozen=True)
class _Request:
    """The options that say what is proven."""

    reference: str
    changed: str | None
    labels: str
    label_target: str
    label_type: str
    timezone: ZoneInfo | None
    tolerance: float
    gap: float | None
    sweep: SweptOption | None
    since: datetime | None
    until: datetime | None
    records: Path | None
    observations: Path | None
    jobs: int

    def check(self) -> None:
        """Refuse options that exclude each other.

        Raises:
            UsageError: there are such options.
        """
        if self.records and self.observations:
            raise click.UsageError("--records and --observations exclude each other")
        if self.labels == VERIFIED and (self.records or self.observations):
            raise click.UsageError(
                "--labels verified needs the verdicts in Redis and archive: leave out --records "
                "and --observations, or name a file of labels"
            )

    def read_labels(self) -> list[Label]:
        """The labels of the file; none if they are Boyd's own verdicts.

        Raises:
            ConfigError: a label is not valid.
        """
        if self.labels == VERIFIED:
            return []
        from boyd_proof.label_files import LabelFields, read_labels

        fields = LabelFields(self.label_target, self.label_type, self.timezone)
        return read_labels(Path(self.labels), fields)

    def contestants(self) -> list[Contestant]:
        """The agents to replay: the present one, the changed one, and one for each value.

        Raises:
            ConfigError: a value of the sweep is refused.
        """
        from boyd_proof.proof_run import Contestant

        task = shadow_task(self.reference, None, known=self.observations is None)
        contestants = [Contestant("present", task)]
        if self.changed:
            contestants.append(Contestant("changed", task.patched({"agent": self.changed})))
        if self.sweep:
            agent = _load(self.reference)
            self.sweep.check(self.reference, agent)
            contestants += [
                Contestant(
                    f"{value:g}", task.patched({"options": self.sweep.options(agent, value)})
                )
                for value in self.sweep.values
            ]
        return contestants


def _load(reference: str) -> Agent:
    try:
        return load_agent(reference)
    except BoydError as error:
        raise ConfigError(f"{reference}: {error}") from None


def _prove(settings: Settings, request: _Request) -> ProofReport:
    from boyd_proof.proof_run import Judge

    labels = request.read_labels()
    contestants = request.contestants()
    material = _replay(settings, request, contestants)
    if request.labels == VERIFIED:
        labels = material.verified
        if not labels:
            raise ConfigError(
                "--labels verified: no action was judged effective in that time; name a file of "
                "labels, or give an earlier --since"
            )
    judge = Judge.of(material, labels, request.tolerance, request.gap)
    sides = 2 if request.changed else 1
    recorded = [material.recorded] if material.recorded else []
    report = judge.report([*recorded, *material.replayed[:sides]])
    if request.sweep is None:
        return report
    return report.patched({"sweep": _judge_sweep(judge, request, material.replayed[sides:])})


def _judge_sweep(judge: Judge, request: _Request, agents: Sequence[Any]) -> Sweep:
    from boyd_proof.sweep import TooLittleData, recommend, split

    assert request.sweep is not None
    values = request.sweep.values
    matches = {value: judge.matches(agent) for value, agent in zip(values, agents, strict=True)}
    points = [
        SweepPoint(
            value=value,
            whole=matches[value].scores(agent.pages),
            unknown_detections=agent.track.count_unknown(),
        )
        for value, agent in zip(values, agents, strict=True)
    ]
    sweep = Sweep(option=request.sweep.text, points=points)
    try:
        present = request.sweep.present(_load(request.reference))
        best = recommend(matches, present)
    except TooLittleData as refusal:
        return sweep.patched({"refusal": str(refusal)})
    parts = split(matches)
    points = [
        point.patched(
            {
                "chosen_on": matches[point.value].scores(agent.pages, parts.start, parts.middle),
                "held_out": matches[point.value].scores(agent.pages, parts.middle, parts.end),
            }
        )
        for point, agent in zip(points, agents, strict=True)
    ]
    return sweep.patched({"points": points, "recommendation": best})


def _replay(
    settings: Settings, request: _Request, contestants: Sequence[Contestant]
) -> ProofMaterial:
    from boyd.export.archive.access import ArchiveAccess
    from boyd.export.archive.merged_work import MergedWork
    from boyd.replay.recordings import FileOfRecords, KeptIterations, ObservationFile

    agent_id = _load(request.reference).id
    if request.observations:
        observations = ObservationFile(request.observations, agent_id)
        return _run(request, contestants, observations, None)
    if request.records:
        records = FileOfRecords(request.records, lambda _number: True)
        return _run(request, contestants, records, None)
    settings = with_archive(settings)
    store = open_store(settings).agent(agent_id)
    archive = ArchiveAccess(settings.archive_url)
    query = HistoryFilter(since=request.since, until=request.until)
    iterations = KeptIterations(store, archive, query, lambda _number: True)
    material = _run(request, contestants, iterations, MergedWork(store, archive))
    archive.close()
    return material


def _run(
    request: _Request,
    contestants: Sequence[Contestant],
    recordings: Recordings,
    work: MergedWork | None,
) -> ProofMaterial:
    from boyd_proof.proof_run import ProofReplay

    def run(progress: Progress) -> ProofMaterial:
        replay = ProofReplay(
            recordings, request.jobs, progress, work, is_recorded=request.observations is None
        )
        return replay.run(contestants)

    if not sys.stderr.isatty():
        return run(lambda _count: None)
    with click.progressbar(length=recordings.count * len(contestants), file=sys.stderr) as bar:
        return run(bar.update)
