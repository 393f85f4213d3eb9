"""The plugin `files`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from boyd.models import ActionResult, EffectVerdict, JsonObject, Model, Observation
from boyd.plugin import Connector, Context, Observer, action, tool
from boyd.plugins.bounded_calls import BoundedCall, BoundedCalls
from boyd.plugins.host_metrics import Thresholds
from boyd.plugins.results import difference
from boyd.text.formatting import counted
from boyd_connectors.connector_parts import CheckReport, Sample, names_in_alarm
from boyd_connectors.files.agreement import common_preview
from boyd_connectors.files.disk_forecast import DiskUsage, Forecast, forecasts, usages
from boyd_connectors.files.file_set import SCAN_TIME, FilesError, FileSet, path_of
from boyd_connectors.files.log_rotation import LogRotation
from boyd_connectors.files.open_files import open_files
from boyd_connectors.files.removal import (
    OldFiles,
    Removal,
    Trash,
    TrashBatch,
    delete,
    old_files,
    put_back,
    set_aside,
    still_there,
)

#: Seconds for a look at one set, its files and its trash.
SET_TIME = 2 * SCAN_TIME + 2.0
#: The part of a threshold below which an alarm ends.
_CLEAR = 0.9


class FileSetParams(Model):
    """A set of files, the host that it is on, and the most files to touch."""

    set: str = Field(min_length=1, max_length=60)
    host: str = Field(default="", max_length=255)
    at_most: int = Field(default=100, ge=1, le=1000)


class RotateParams(Model):
    """A file as observations name it, and the host that it is on."""

    path: str = Field(min_length=2, max_length=16_384)
    host: str = Field(default="", max_length=255)


class ListFilesParams(FileSetParams):
    """Also whether to list the oldest files or the largest."""

    by: Literal["age", "size"] = "age"


class SetAccess(BaseModel):
    """The files that an action may touch.

    Attributes:
        sets: the names of sets; empty: all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sets: list[str] = Field(default_factory=list)


class FileActions(BaseModel):
    """The actions that are enabled.

    Attributes:
        rotate: give files another name.
        trash_old: move old files to a trash.
        delete_old: delete old files.
        empty_trash: delete what is in the trash.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rotate: SetAccess | None = None
    trash_old: SetAccess | None = None
    delete_old: SetAccess | None = None
    empty_trash: SetAccess | None = None


class DiskFiles(Connector):
    """Watches file systems and sets of files of every host, rotates files and deletes old ones."""

    id = "files"

    class Options(Connector.Options):
        """The plugin's options; times in seconds.

        Attributes:
            mounts: where the file systems to watch are mounted.
            sets: the files to watch, and to act on.
            used: percent of space or inodes in use that are a warning, and an error.
            window: for how long growth is remembered.
            warning_within: a file system that is full within this time is a warning.
            error_within: and within this one an error.
            interval: between two looks at file systems.
            scan_interval: between two looks at the sets.
            queue: the queue of the workers on the only host to watch and act on; none: all hosts.
        """

        mounts: list[str] = Field(default=["/"], max_length=20)
        sets: list[FileSet] = Field(default_factory=list, max_length=50)
        interval: float = Field(default=60.0, gt=0)
        scan_interval: float = Field(default=600.0, gt=0)
        used: Thresholds = Thresholds(warning=85, error=95)
        window: float = Field(default=21_600.0, gt=0, le=604_800)
        warning_within: float = Field(default=86_400.0, gt=0)
        error_within: float = Field(default=14_400.0, gt=0)
        samples: int = Field(default=2, ge=1, le=100)
        queue: str | None = None
        max_items: int = Field(default=20, ge=1, le=200)
        actions: FileActions = FileActions()

        @model_validator(mode="after")
        def _consistent(self) -> Self:
            names = [file_set.name for file_set in self.sets]
            if len(names) != len(set(names)):
                raise ValueError("two sets have the same name")
            tables = [getattr(self.actions, name) for name in FileActions.model_fields]
            for name in {entry for table in tables if table for entry in table.sets} - set(names):
                raise ValueError(f"actions: there is no set {name!r}")
            if self.window < 12 * self.interval:
                raise ValueError("window must be 12 times as long as interval, or longer")
            return self

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._calls = BoundedCalls()
        own = self.options
        looks = [("space", own.interval, 30.0, "Look at space, inodes and growth.")]
        if own.sets:
            time = 30.0 + SET_TIME * len(own.sets)
            looks.append(("sets", own.scan_interval, time, "Look for old and big files."))
        self.components = tuple(
            Observer(
                name=name,
                description=description,
                interval=interval,
                timeout=timeout,
                queue=own.queue,
                scope="anywhere" if own.queue else "every_host",
                observe=getattr(self, name),
            )
            for name, interval, timeout, description in looks
        )

    def space(self, ctx: Context) -> list[Observation]:
        """Observe file systems that are full, or will be soon."""
        report = CheckReport(ctx, self.options.max_items, host=ctx.host)
        by_mount, lost = usages(self.options.mounts, self._calls)
        for mount, error in lost.items():
            report.add("mount", "error", {"mount": mount, "error": error})
        results = forecasts(ctx, by_mount, lost, self.options.window)
        samples: dict[str, Sample] = {}
        for (mount, resource), (usage, ahead) in results.items():
            samples |= self._samples(f"{resource} {mount}", usage, ahead)
        alarms = names_in_alarm(
            ctx,
            f"alarms/{ctx.host}",
            samples,
            self.options.samples,
            lambda name: name.split(" ", 3)[3] in lost,
        )
        for (mount, resource), (usage, ahead) in results.items():
            data: JsonObject = {"mount": mount, "of": resource, "usedPercent": round(usage.percent)}
            for kind, more in (("full", {}), ("filling", _coarse(ahead))):
                for severity in ("error", "warning"):
                    if f"{kind} {severity} {resource} {mount}" in alarms:
                        report.add(kind, severity, {**data, **more})
                        break
        for (mount, resource), (usage, ahead) in results.items():
            data = {"mount": mount, "of": resource, "usedPercent": round(usage.percent)}
            text = "full soon" if ahead.seconds is not None else f"no forecast: {ahead.reason}"
            report.add("space", "info", {**data, "forecast": text}, "metric")
        return report.observations("summary", mounts=len(by_mount))

    def sets(self, ctx: Context) -> list[Observation]:
        """Observe old and big files, and what the trash holds."""
        report, files = CheckReport(ctx, self.options.max_items, host=ctx.host), 0
        for file_set in self.options.sets:
            read = self._read_set(file_set)
            if isinstance(read, Exception):
                report.add("unreadable", "error", {"set": file_set.name, "error": str(read)})
                continue
            old, batches = read
            files += old.number
            if old.cut or old.unreadable:
                data: JsonObject = {"cut": old.cut, "unreadableFolders": old.unreadable}
                report.add("incomplete", "warning", {"set": file_set.name, **data})
            if old.number:
                data = {"set": file_set.name, "files": old.number, "bytes": old.size}
                report.add("old", "warning", data)
            for size, file in sorted(old.big, reverse=True):
                path = file.approval_entry()["path"]
                report.add("big", "warning", {"set": file_set.name, "path": path, "bytes": size})
            if batches:
                due = [batch for batch in batches if batch.age >= file_set.trash_keep]
                data = {"set": file_set.name, "batches": len(batches), "due": len(due)}
                data["bytes"] = sum(batch.size for batch in batches)
                report.add("trash", "warning" if due else "info", data)
        return report.observations("summary", sets=len(self.options.sets), oldFiles=files)

    @action(risk="medium", autonomy="approval-required", target="path", timeout=900)
    def rotate(self, params: RotateParams, ctx: Context) -> JsonObject:
        """Give a file another name, and have its process begin a new one."""
        return self._rotation(params, ctx).rotate(common_preview(ctx))

    @rotate.dry_run
    def _would_rotate(self, params: RotateParams, ctx: Context) -> JsonObject:
        rotation = self._rotation(params, ctx)
        plan = rotation.plan()
        before = {"bytes": plan.file.size, "rotated files": len(plan.rotated)}
        after = {"bytes": 0, "rotated files": len(plan.rotated) + 1}
        return {
            **plan.file.approval_entry(),
            "would change": difference(before, after, params.path),
            "would signal": f"{plan.writer.name()} ({plan.writer.pid})" if plan.writer else "none",
            "would move to the trash": list(rotation.excess(plan)),
        }

    @rotate.verify(within=60, every=3)
    def _is_rotated(
        self, params: RotateParams, result: ActionResult, ctx: Context
    ) -> EffectVerdict | None:
        done = result.output if isinstance(result.output, dict) else common_preview(ctx)
        if not done:
            return None
        rotated, evidence = self._rotation(params, ctx).effect(done)
        verdict: Literal["effective", "no effect"] = "effective" if rotated else "no effect"
        return EffectVerdict(verdict=verdict, evidence=evidence, final=rotated)

    @rotate.rollback
    def _unrotate(self, params: RotateParams, result: ActionResult, ctx: Context) -> JsonObject:
        return self._rotation(params, ctx).undo(result.output)

    @action(risk="medium", autonomy="approval-required", target="set", timeout=180)
    def trash_old(self, params: FileSetParams, ctx: Context) -> JsonObject:
        """Move the oldest files of a set to its trash, which frees no space yet."""
        file_set = self._set("trash_old", params, ctx)
        removal = set_aside(file_set, self._selection(file_set, params, ctx))
        return {**_outcome(removal, "was moved"), "batch": removal.batch}

    @trash_old.dry_run
    def _would_trash(self, params: FileSetParams, ctx: Context) -> JsonObject:
        return self._preview("move files to the trash", "trash_old", params, ctx)

    @trash_old.verify(within=10, every=5)
    def _is_trashed(
        self, params: FileSetParams, result: ActionResult, ctx: Context
    ) -> EffectVerdict | None:
        more = "; no space is free until the trash is emptied"
        return self._removal_verdict(self._set("trash_old", params, ctx), result, ctx, more)

    @trash_old.rollback
    def _untrash(self, params: FileSetParams, result: ActionResult, ctx: Context) -> JsonObject:
        done: Any = result.output
        file_set = self._set("trash_old", params, ctx)
        return _outcome(put_back(file_set, done["batch"], done["files"]), "was moved back")

    @action(
        risk="high",
        reversibility="irreversible",
        autonomy="approval-required",
        target="set",
        timeout=180,
    )
    def delete_old(self, params: FileSetParams, ctx: Context) -> JsonObject:
        """Delete the oldest files of a set."""
        file_set = self._set("delete_old", params, ctx)
        agreed, before = self._selection(file_set, params, ctx), _free(file_set)
        outcome = _outcome(delete(file_set, agreed), "was deleted")
        return {**outcome, "freeBefore": before, "freeAfter": _free(file_set)}

    @delete_old.dry_run
    def _would_delete(self, params: FileSetParams, ctx: Context) -> JsonObject:
        return self._preview("delete files", "delete_old", params, ctx)

    @delete_old.verify(within=10, every=5)
    def _is_deleted(
        self, params: FileSetParams, result: ActionResult, ctx: Context
    ) -> EffectVerdict | None:
        file_set = self._set("delete_old", params, ctx)
        before = result.output.get("freeBefore") if isinstance(result.output, dict) else None
        then = f", {before} were before" if before is not None else ""
        return self._removal_verdict(
            file_set, result, ctx, f"; {_free(file_set)} bytes are free{then}"
        )

    @action(
        risk="high",
        reversibility="irreversible",
        autonomy="approval-required",
        target="set",
        timeout=300,
    )
    def empty_trash(self, params: FileSetParams, ctx: Context) -> JsonObject:
        """Delete what has been in the trash of a set for long enough."""
        file_set = self._set("empty_trash", params, ctx)
        agreed = common_preview(ctx)
        due, before = self._due(file_set, params), _free(file_set)
        if agreed is not None:
            due = [batch for batch in due if batch.approval_entry() in agreed["batches"]]
        if not due:
            raise FilesError("nothing was deleted: the trash has changed since it was agreed to")
        entries, left = [], []
        with file_set.open_root() as root, Trash(file_set, root) as trash:
            for batch in due:
                try:
                    trash.delete(batch)
                    entries.append(batch.approval_entry())
                except (FilesError, OSError) as error:
                    left.append(f"{batch.name} was not deleted, or not all of it: {error}")
        if not entries:
            raise FilesError("; ".join(left))
        outcome: JsonObject = {"batches": list(entries), "left": list(left)}
        return {**outcome, "freeBefore": before, "freeAfter": _free(file_set)}

    @empty_trash.dry_run
    def _would_empty(self, params: FileSetParams, ctx: Context) -> JsonObject:
        due = self._due(self._set("empty_trash", params, ctx), params)
        return {
            "would delete files": sum(batch.files for batch in due),
            "bytes": sum(batch.size for batch in due),
            "batches": [batch.approval_entry() for batch in due],
        }

    @empty_trash.verify(within=10, every=5)
    def _is_emptied(
        self, params: FileSetParams, result: ActionResult, ctx: Context
    ) -> EffectVerdict | None:
        file_set = self._set("empty_trash", params, ctx)
        done: Any = result.output if isinstance(result.output, dict) else common_preview(ctx)
        if not done:
            return None
        names = {batch["batch"] for batch in done["batches"]}
        left = len(names & {batch.name for batch in self._batches(file_set)})
        evidence = (
            f"{len(names) - left} of {len(names)} batches are gone; {_free(file_set)} bytes free"
        )
        return EffectVerdict(verdict="no effect" if left else "effective", evidence=evidence)

    @tool()
    def show_space(self, ctx: Context) -> JsonObject:
        """Show space, inodes, growth and forecast of the file systems of this host."""
        by_mount, lost = usages(self.options.mounts, self._calls)
        rows: JsonObject = dict(lost)
        for (mount, resource), (usage, ahead) in forecasts(
            ctx, by_mount, lost, self.options.window
        ).items():
            rows[f"{mount} {resource}"] = {
                "usedPercent": round(usage.percent, 1),
                "free": usage.free,
                "growthPerHour": round(3600 * ahead.pace),
                "secondsToFull": None if ahead.seconds is None else round(ahead.seconds),
                "noForecast": ahead.reason,
            }
        return rows

    @tool()
    def list_files(self, params: ListFilesParams, ctx: Context) -> JsonObject:
        """List the oldest files of a set, or those that are larger than it permits."""
        file_set = self._set(None, params, ctx)
        old = old_files(file_set, params.at_most)
        largest = [file for _, file in sorted(old.big, reverse=True)[: params.at_most]]
        listed = old.oldest if params.by == "age" else largest
        busy = open_files({file.key for file in listed}).by
        files = [{**file.approval_entry(), "open": busy.get(file.key, "")} for file in listed]
        return {"files": list(files), "old": old.number, "cut": old.cut}

    def _samples(self, name: str, usage: DiskUsage, ahead: Forecast) -> dict[str, Sample]:
        """Samples for alarms that it is full or will be; unsteady growth begins and ends none."""
        own, samples = self.options, {}
        limits = {"warning": own.warning_within, "error": own.error_within}
        for severity, within in limits.items():
            limit = getattr(own.used, severity)
            samples[f"full {severity} {name}"] = Sample(usage.percent, limit, limit * _CLEAR)
            soon = 0.0 if ahead.steady else _CLEAR
            if ahead.seconds is not None:
                soon = within / max(1.0, ahead.seconds)
            samples[f"filling {severity} {name}"] = Sample(soon, 1.0, _CLEAR)
        return samples

    def _set(self, action: str | None, params: FileSetParams, ctx: Context) -> FileSet:
        _on_host(params.host, ctx)
        for file_set in self._sets(action):
            if file_set.name == params.set:
                return file_set
        raise FilesError(f"{action or 'the plugin'} has no set {params.set!r}")

    def _sets(self, action: str | None) -> Sequence[FileSet]:
        access = getattr(self.options.actions, action) if action else None
        names = access.sets if access else []
        return [file_set for file_set in self.options.sets if not names or file_set.name in names]

    def _rotation(self, params: RotateParams, ctx: Context) -> LogRotation:
        _on_host(params.host, ctx)
        path, reason = path_of(params.path), "no set has options for its rotation"
        for file_set in self._sets("rotate"):
            if file_set.rotation:
                try:
                    return LogRotation(file_set, file_set.rotation, path)
                except FilesError as error:
                    reason = str(error)
        raise FilesError(f"{params.path} cannot be rotated: {reason}")

    def _preview(self, verb: str, action: str, params: FileSetParams, ctx: Context) -> JsonObject:
        old = old_files(self._set(action, params, ctx), params.at_most)
        if not old.oldest:
            raise FilesError(f"the set {params.set} has no old files")
        busy = open_files({file.key for file in old.oldest})
        return {
            f"would {verb}": len(old.oldest),
            "bytes": sum(file.blocks for file in old.oldest),
            "files": [file.approval_entry() for file in old.oldest],
            "stay, as they are open": [
                f"{file.approval_entry()['path']}: {busy.by[file.key]}"
                for file in old.oldest
                if file.key in busy.by
            ],
            "all open files were seen": busy.complete,
            "more old files": old.number - len(old.oldest),
            "cut": old.cut,
        }

    def _selection(
        self, file_set: FileSet, params: FileSetParams, ctx: Context
    ) -> list[JsonObject]:
        """The files that were approved, or the oldest if nobody had to approve."""
        agreed = common_preview(ctx)
        if agreed is not None:
            files: list[JsonObject] = agreed.get("files", [])
            return files[: params.at_most]
        return [file.approval_entry() for file in old_files(file_set, params.at_most).oldest]

    def _removal_verdict(
        self, file_set: FileSet, result: ActionResult, ctx: Context, more: str
    ) -> EffectVerdict | None:
        done: Any = result.output if isinstance(result.output, dict) else common_preview(ctx)
        if not done:
            return None
        files = done["files"]
        there, busy = still_there(file_set, files)
        evidence = f"{len(files) - len(there)} of {counted(len(files), 'file')} are gone{more}"
        if busy:
            holders = ", ".join(sorted(set(busy.values()))[:5])
            evidence += f"; {len(busy)} still take space, as {holders} has them open"
        return EffectVerdict(verdict="no effect" if there else "effective", evidence=evidence)

    def _read_set(self, file_set: FileSet) -> tuple[OldFiles, list[TrashBatch]] | Exception:
        """The old files and the trash of a set; one that hangs, or fails, hides no other."""
        name = f"set {file_set.name}"
        look = BoundedCall(lambda: (old_files(file_set, 1), self._batches(file_set)), SET_TIME)
        return self._calls.make({name: look})[name]

    def _batches(self, file_set: FileSet) -> list[TrashBatch]:
        with file_set.open_root() as root, Trash(file_set, root) as trash:
            return trash.batches()

    def _due(self, file_set: FileSet, params: FileSetParams) -> list[TrashBatch]:
        due = [batch for batch in self._batches(file_set) if batch.age >= file_set.trash_keep][
            : params.at_most
        ]
        if not due:
            raise FilesError(
                f"the trash of {file_set.name} holds nothing for {file_set.trash_keep:g} s yet"
            )
        return due


def _on_host(host: str, ctx: Context) -> None:
    if host not in ("", ctx.host):
        raise FilesError(
            f"the files are on {host}, this worker on {ctx.host}: use the plugin once for each "
            f"host, with queue = 'host.{host}'"
        )


def _free(file_set: FileSet) -> int:
    with file_set.open_root() as root:
        stats = os.fstatvfs(root)
    return stats.f_bavail * stats.f_frsize


def _outcome(removal: Removal, done: str) -> JsonObject:
    if not removal.done:
        raise FilesError(f"no file {done}: {'; '.join(removal.left) or 'there is none'}")
    return {
        "files": [file.approval_entry() for file in removal.done],
        "bytes": sum(file.blocks for file in removal.done),
        "stayed": removal.stayed,
        "left": list(removal.left),
    }


def _coarse(ahead: Forecast) -> JsonObject:
    """A forecast that changes seldom."""
    hours = (ahead.seconds or 0.0) / 3600
    return {
        "fullInHours": float(f"{hours:.1g}"),
        "growthPerHour": float(f"{3600 * ahead.pace:.1g}"),
    }
