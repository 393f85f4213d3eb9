"""The options of the rotation of files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Rotation(BaseModel):
    """A way to rotate files: by another name and a signal, or by a copy.

    Attributes:
        pid_file: the file with the id of the process that writes the files.
        process: the name of that process, so that no other one gets the signal.
        signal: has it open its files anew.
        copy_truncate: copy the file and empty it, for programs that cannot open it anew; what they
            write in between is lost.
        compress: compress rotated files once nobody writes them any more.
        keep: how many rotated files stay; older ones go to the trash. By default all stay.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pid_file: Path | None = None
    process: str | None = None
    signal: Literal["HUP", "USR1", "USR2"] = "HUP"
    copy_truncate: bool = False
    compress: bool = True
    keep: int | None = Field(default=None, ge=1, le=1000)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.pid_file is None) != (self.process is None):
            raise ValueError("pid_file and process need each other")
        if self.pid_file and self.copy_truncate:
            raise ValueError("either pid_file or copy_truncate: a copy needs no signal")
        return self
