"""Sandboxes of actions: what they may use, and what went beyond that."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field

from boyd.models.base import Model
from boyd.text.formatting import counted

#: What an action went beyond: a limit, its writable folders, or its destinations.
LimitName = Literal["cpu", "memory", "processes", "file size", "files", "network", "time"]

_DESTINATION = re.compile(r"(?=.{1,253}:)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?:(\d{1,5})")
_MEGABYTE = 1_000_000


def _folder(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or path == PurePosixPath("/"):
        raise ValueError(f"{text!r} is not an absolute path of a folder below the root")
    return str(path)


def _destination(text: str) -> str:
    found = _DESTINATION.fullmatch(text)
    if found is None or not 0 < int(found[1]) < 65536:
        raise ValueError(f"{text!r} is not a destination such as api.example.com:443")
    return text.lower()


Folder = Annotated[str, AfterValidator(_folder)]
Destination = Annotated[str, AfterValidator(_destination)]


class Sandbox(Model):
    """The limits of a process that executes an action; an absent one does not limit it.

    Attributes:
        user: the user it runs as; absent: that of the worker.
        cpu: seconds of CPU time of each process.
        memory: bytes of address space of each process.
        processes: how many processes and threads there may be at the same time.
        file_size: bytes of the largest file it may write.
        time: seconds it may take; the time limit of the action, if that is shorter.
        files: folders in which it may write, besides a temporary one of its own.
        network: destinations (`host:port`) it may connect to by TCP, or `any`.
        violations: how many violations within `window` seconds suspend the action.
    """

    user: str | None = Field(default=None, min_length=1)
    cpu: int | None = Field(default=None, gt=0)
    memory: int | None = Field(default=None, ge=64 * _MEGABYTE)
    processes: int | None = Field(default=None, gt=0)
    file_size: int | None = Field(default=None, ge=0)
    time: float | None = Field(default=None, gt=0)
    files: list[Folder] = Field(default_factory=list)
    network: list[Destination] | Literal["any"] = Field(default_factory=list)
    violations: int = Field(default=3, gt=0)
    window: float = Field(default=3600.0, gt=0)

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Its privileges and limits for people, by name."""
        any_address = "any address" if self.network == "any" else ""
        limits = {
            "cpu": self.cpu and f"{self.cpu} s",
            "time": self.time and f"{self.time:g} s",
            "memory": self.memory and f"{self.memory / _MEGABYTE:g} MB",
            "file size": None if self.file_size is None else f"{self.file_size / _MEGABYTE:g} MB",
            "processes": self.processes and str(self.processes),
        }
        return [
            ("user", self.user or "of the worker"),
            ("writes to", ", ".join(self.files) or "nothing"),
            ("reaches", any_address or ", ".join(self.network) or "nothing"),
            *((name, text) for name, text in limits.items() if text),
            ("suspended after", f"{counted(self.violations, 'violation')} in {self.window:g} s"),
        ]

    def tightened(self, ours: Sandbox) -> Self:
        """A copy with the limits that *ours* sets.

        Raises:
            ValueError: one of them is looser; the message names it.
        """
        given = {name: getattr(ours, name) for name in ours.model_fields_set}
        for name, value in given.items():
            if not _is_tighter(name, getattr(self, name), value):
                raise ValueError(f"{name}: it is looser than what the action declares")
        return self.patched(given)


def _is_tighter(name: str, declared: object, given: object) -> bool:
    """Tell whether the limit *given* allows nothing that the *declared* one does not."""
    if name == "user":
        return declared is None or declared == given
    if name == "network":
        within = isinstance(declared, list) and isinstance(given, list)
        return declared == "any" or (within and set(_texts(given)) <= set(_texts(declared)))
    if name == "files":
        folders = [PurePosixPath(text) for text in _texts(declared)]
        return all(any(PurePosixPath(g).is_relative_to(f) for f in folders) for g in _texts(given))
    if not isinstance(declared, int | float):
        return True
    if not isinstance(given, int | float):
        return False
    return given >= declared if name == "window" else given <= declared


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


class LimitViolation(Model):
    """An attempt of an action to go beyond its sandbox, which was prevented."""

    limit: LimitName
    detail: str
