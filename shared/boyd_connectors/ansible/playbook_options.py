"""The options of playbooks, and the digest and lock of their project's files."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic_core import SchemaError

from boyd.models import Model
from boyd.models.base import Level
from boyd.plugin import Secret

#: The most files of a project, and the most bytes of all.
MAX_FILES, MAX_BYTES = 10_000, 67_108_864
#: Folders that have no part in what a playbook does.
_IGNORED = (".git", "__pycache__")
#: Seconds between two attempts to acquire the lock.
_PAUSE = 0.2


class AnsibleFailure(Exception):
    """Ansible cannot be run, or did not do what it was asked for."""


def digest_of(folders: Iterable[Path], unpinned: Iterable[str], hosts: Iterable[str]) -> str:
    """A digest of the names and contents of all files in *folders*, and of the names of *hosts*.

    Files whose names match a pattern of *unpinned* are left out.

    Raises:
        AnsibleFailure: a file cannot be read, or there is too much.
    """
    digest = hashlib.sha256("\n".join(sorted(hosts)).encode())
    count = size = 0
    patterns = tuple(unpinned)
    for folder in folders:
        for path in _files(folder, patterns):
            count += 1
            try:
                size += path.stat().st_size
                if count > MAX_FILES or size > MAX_BYTES:
                    limits = f"more than {MAX_FILES} files or {MAX_BYTES} bytes"
                    raise AnsibleFailure(f"{folder}: holds {limits}; give it a folder of its own")
                content = hashlib.sha256(path.read_bytes()).digest()
            except OSError as error:
                raise AnsibleFailure(f"{path}: {error.strerror}") from None
            digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + content)
    return f"sha256:{digest.hexdigest()}"


def _files(folder: Path, unpinned: tuple[str, ...]) -> Iterator[Path]:
    if not folder.is_dir():
        if not folder.exists():
            raise AnsibleFailure(f"{folder}: does not exist")
        yield folder
        return
    visited = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in visited:  # a link to a folder above it
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if name not in _IGNORED)
        for name in sorted(names):
            path = Path(here, name)
            if path.is_file() and not any(fnmatchcase(name, pattern) for pattern in unpinned):
                yield path


@contextmanager
def running_lock(folder: Path, patience: float = 0.0) -> Iterator[int]:
    """The lock of what runs in *folder* on this host, as the descriptor of a file.

    Waits up to *patience* seconds for it.

    A process that inherits the descriptor keeps the lock, so that it outlives a worker that was
    killed as long as its playbook does.

    Raises:
        AnsibleFailure: something runs there.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise AnsibleFailure(f"{folder}: {error.strerror}") from None
    try:
        until = time.monotonic() + patience
        while not _try_lock(descriptor):
            if time.monotonic() >= until:
                raise AnsibleFailure(f"a playbook of {folder} still runs; wait for its end")
            time.sleep(_PAUSE)
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


#: A name of a host or a group: no pattern, of which nobody sees how many hosts it matches.
HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?$")]
#: A file in the project.
ProjectFile = Annotated[str, Field(pattern=r"^[\w][\w./ -]*\.ya?ml$", max_length=300)]
Scalar = str | int | float | bool
_STARTS = ("{{", "{%", "{#")
_TYPES: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}


def _no_template(text: str) -> str:
    if any(start in text for start in _STARTS):
        raise ValueError("holds a template, which Ansible would evaluate")
    if not text.isprintable():
        raise ValueError("holds characters that cannot be printed")
    return text


class PlaybookParams(Model):
    """The host or group of the inventory that a playbook runs on, and its variables."""

    hosts: HostName


class PlaybookVariable(BaseModel):
    """A variable that is set for each run of a playbook.

    Attributes:
        type: of its values.
        pattern: a regular expression that the whole of a string matches.
        choices: the only values.
        minimum: the lowest number.
        maximum: the highest number.
        default: the value if none is set; without a default, one has to be set.
        description: for people who set it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["string", "integer", "number", "boolean"] = "string"
    pattern: str = r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]{0,199}"
    choices: list[Scalar] = Field(default_factory=list)
    minimum: float | None = None
    maximum: float | None = None
    default: Scalar | None = None
    description: str = ""

    def field(self, name: str) -> Any:
        """Its annotation and field, for a model."""
        annotation: Any = _TYPES[self.type]
        bounds: dict[str, Any] = {}
        if self.choices:
            annotation = Literal[tuple(self.choices)]
        elif self.type == "string":
            bounds = {"pattern": f"^(?:{self.pattern})$", "max_length": 4000}
        elif self.type != "boolean":
            bounds = {"ge": self.minimum, "le": self.maximum, "allow_inf_nan": False}
            bounds = {key: value for key, value in bounds.items() if value is not None}
        if self.type == "integer":
            bounds.pop("allow_inf_nan", None)
        if self.type == "string":
            annotation = Annotated[annotation, AfterValidator(_no_template)]
        default = ... if self.default is None else self.default
        return annotation, Field(
            default,
            alias=name,
            description=self.description or None,
            strict=None if self.choices else True,
            validate_default=True,
            **bounds,
        )


class AnsiblePlaybook(BaseModel):
    """A playbook of the project; times in seconds.

    Attributes:
        file: its path in the project.
        description: for people who approve it.
        variables: those that it may be given, by name.
        drift: whether to look regularly for changes that it would make.
        hosts: the host or group of the inventory to look at for drift.
        rollback: a playbook that undoes it, with the same variables.
        verify: a playbook that fails if it had no effect, and changes nothing.
        risk: of running it.
        timeout: of a run.
        verify_within: in which its effect has to show.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: ProjectFile
    description: str = Field(default="", max_length=200)
    variables: dict[Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,63}$")], PlaybookVariable] = (
        Field(default_factory=dict)
    )
    drift: bool = False
    hosts: HostName = "all"
    rollback: ProjectFile | None = None
    verify: ProjectFile | None = None
    risk: Level = "high"
    timeout: float = Field(default=600.0, ge=10, le=3600)
    verify_within: float = Field(default=120.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _usable(self) -> Self:
        for name, variable in self.variables.items():
            if name == "hosts" or name.startswith(("ansible_", "boyd_")):
                raise ValueError(f"variable {name}: this name is taken; give it another one")
            if self.drift and variable.default is None:
                raise ValueError(f"variable {name}: has no default, which `drift` needs")
        try:
            if self.drift:
                self.params("check")(hosts=self.hosts)
            self.params("check")
        except (SchemaError, ValueError) as error:
            raise ValueError(f"variables: {str(error).splitlines()[-1]}") from None
        return self

    def params(self, name: str) -> type[PlaybookParams]:
        """The model of what it takes."""
        fields = {key: variable.field(key) for key, variable in self.variables.items()}
        return create_model(f"{name}_params", __base__=PlaybookParams, **fields)


class AnsibleAccess(BaseModel):
    """Credentials on the hosts; what is set here counts more than the inventory.

    Attributes:
        user: to log in as.
        private_key: the file of the key to log in with.
        become_password: of `become`, such as for sudo.
        vault_password: of encrypted files of the project.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@\\-]*$")
    private_key: Path | None = None
    become_password: Secret | None = None
    vault_password: Secret | None = None
