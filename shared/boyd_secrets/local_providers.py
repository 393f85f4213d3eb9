"""Secrets on the worker itself: in the files of a folder, and in its environment."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pydantic import Field

from boyd.errors import SecretUnavailable
from boyd.settings.secret_references import MAX_SECRET, SecretProvider
from boyd.settings.validation import decode


class SecretFiles(SecretProvider):
    """Reads the files of one folder: the path of a reference is that of the file there."""

    class Options(SecretProvider.Options):
        """The options of the provider.

        Attributes:
            folder: the folder; nothing outside of it is read, not even by a symbolic link.
            any_mode: read files that every user of the host may read or change, too.
        """

        folder: Path
        any_mode: bool = False

    options: Options

    def read(self, path: str) -> str:
        """The content of a file, a single line without its end.

        Raises:
            SecretUnavailable: it is outside of the folder, cannot be read, or others can read it.
        """
        try:
            folder = self.options.folder.resolve(strict=True)
            # Volumes of Kubernetes are symbolic links within the folder.
            file = (folder / path).resolve(strict=True)
            if not file.is_relative_to(folder):
                raise SecretUnavailable("the file is outside of the provider's folder")
            # Neither a link that has just taken its place, nor a pipe that never ends.
            handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise SecretUnavailable(f"its file: {reason}") from None
        try:
            self._check(os.fstat(handle))
            raw = os.read(handle, 4 * MAX_SECRET + 1)
        finally:
            os.close(handle)
        if len(raw) > 4 * MAX_SECRET:
            raise SecretUnavailable("its file is too long for a secret")
        try:
            text = decode(raw)
        except ValueError as error:
            raise SecretUnavailable(f"its file {error}") from None
        return text.rstrip("\r\n") if text.count("\n") <= 1 else text

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise SecretUnavailable("it is no file")
        if status.st_mode & 0o007 and not self.options.any_mode:
            mode = stat.S_IMODE(status.st_mode)
            raise SecretUnavailable(
                f"its file has mode {mode:o}, so every user of this host can use it: chmod o-rwx, "
                "or set any_mode if nobody else can reach the folder"
            )


class SecretVariables(SecretProvider):
    """Reads variables of the environment whose names begin with a prefix."""

    class Options(SecretProvider.Options):
        """The options of the provider.

        Attributes:
            prefix: the beginning of the names that references may use, such as `APP_`.
        """

        prefix: str = Field(min_length=2, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")

    options: Options

    def read(self, path: str) -> str:
        """The value of the variable *path*.

        Raises:
            SecretUnavailable: its name has another beginning, or it is not set.
        """
        if not path.startswith(self.options.prefix):
            raise SecretUnavailable(f"only variables that begin with {self.options.prefix} count")
        value = os.environ.get(path, "")
        if not value:
            raise SecretUnavailable("the variable is not set")
        return value
