"""Users that commands and sandboxes run as."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    """The user a command runs as."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}:{','.join(map(str, self.groups))}"


def account(name: str) -> Account | None:
    """The account of a user, None if we run as that user; raises `ValueError` if we cannot."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"no such user: {name!r}") from None
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise ValueError(f"only root can run commands as the user {name!r}")
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return Account(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)
