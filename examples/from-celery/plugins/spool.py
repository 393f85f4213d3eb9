"""The tasks of tasks.py as a plugin: the check observes and decides, the purge acts."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field

from boyd import (
    Anomaly,
    Decision,
    Observation,
    Plugin,
    Situation,
    SituationAssessment,
    action,
    observer,
    orienter,
    strategy,
)


class Purge(BaseModel):
    """What to leave of the rejected files."""

    keep: int = Field(ge=1)


class Spool(Plugin):
    """Asks to delete rejected files when there are too many."""

    id = "spool"

    class Options(Plugin.Options):
        """The folder, and its limits."""

        folder: str = "spool"
        limit: int = 3
        keep: int = Field(default=1, ge=1)

    options: Options

    def rejected(self) -> list[Path]:
        """The rejected files, the oldest first."""
        files = Path(self.options.folder).glob("*.rejected")
        return sorted(files, key=lambda file: file.stat().st_mtime)

    @observer(interval=60)
    def count(self) -> list[Observation]:
        """Count the rejected files, and compare their number with the limit."""
        count = len(self.rejected())
        return [
            Observation(
                source=self.id,
                type="metric",
                severity="warning" if count > self.options.limit else "info",
                data={"rejected": count},
            )
        ]

    @orienter()
    def judge(self, observations: list[Observation]) -> SituationAssessment:
        """Report a full spool."""
        full = [
            Anomaly(
                type="folder-full",
                description=f"{o.data['rejected']} files were rejected",
                severity="medium",
                affected_resources=[self.options.folder],
            )
            for o in observations
            if o.source == self.id and o.severity == "warning"
        ]
        return SituationAssessment(
            source=f"{self.id}:judge",
            findings=["The spool is full" if full else "The spool has room"],
            anomalies=full,
            confidence=1.0,
        )

    @strategy(withdraw_when_clear=True)
    def propose(self) -> Decision:
        """Purge the spool."""
        return Decision(
            action=f"{self.id}:purge",
            params={"keep": self.options.keep},
            rationale="too many files were rejected",
            confidence=0.9,
        )

    @propose.applicable_when
    def _full(self, situation: Situation) -> bool:
        return any(anomaly.type == "folder-full" for anomaly in situation.anomalies)

    @action(risk="medium", reversibility="irreversible", autonomy="approval-required", timeout=30)
    def purge(self, params: Purge) -> str:
        """Delete rejected files, except the newest."""
        files = self.rejected()[: -params.keep]
        for file in files:
            file.unlink()
        return f"deleted {len(files)} files"

    @purge.dry_run
    def _would_purge(self, params: Purge) -> str:
        return f"would delete {len(self.rejected()[: -params.keep])} files"

    @purge.verify(within=10, every=2)
    def _is_small(self) -> bool:
        return len(self.rejected()) <= self.options.limit
