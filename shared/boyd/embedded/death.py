"""A process that dies when its parent does, even by SIGKILL. Linux only; elsewhere a no-op."""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1
# Looked up at import: between fork and exec is no place to load a library.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def follow_parent(death_signal: int, parent: int) -> None:
    """Have the kernel send this process *death_signal* when its parent is gone.

    Runs in the child: as `preexec_fn`, or first thing in a forked pool process, which does not
    inherit the wish of the process it was forked from. Two things to know: "the parent" is the
    thread that forked, so fork from the main thread; and the wish survives exec, unless exec
    changes the user.

    Args:
        death_signal: what to send.
        parent: the pid that the parent had before the fork.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != parent:  # it died before the wish was known
        os._exit(1)
