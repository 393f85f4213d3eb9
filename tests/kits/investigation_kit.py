"""A site over an agent whose model follows a script, with a tool and an action for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as Folder
from typing import Any

from pydantic import BaseModel

from api_kit import Site
from archive_kit import Archive, sqlite
from boyd import Agent, Plugin, action, tool
from boyd.models.investigation import Entry
from boyd.testing import Lab, ScriptedModel
from harness import wait_until
from lab_redis import client_of

#: The header of a request that may be repeated.
KEY = {"Idempotency-Key": "once"}


class Path(BaseModel):
    """Params with a path."""

    path: str = "/"


class Disk(Plugin):
    """A tool, and an action that a person has to allow."""

    id = "disk"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.cleaned: list[str] = []

    @tool()
    def look(self, params: Path) -> str:
        """Look how full it is."""
        return f"{params.path} is full"

    @action(tool=True, autonomy="approval-required")
    def clean(self, params: Path) -> str:
        """Remove what is old."""
        self.cleaned.append(params.path)
        return f"cleaned {params.path}"


class Case:
    """A site over an agent whose model follows a script."""

    def __init__(self, server: Any, model: ScriptedModel) -> None:
        self.disk = Disk()
        self.model = model
        llm = {"base_url": f"{model.url}/v1", "model": "scripted"}
        agent = Agent("disks", plugins=[self.disk], llm=llm)
        client = client_of(server)
        self.site = Site(Lab(agent, client=client), server, max_wait=5)
        self.get, self.post = self.site.get, self.site.post
        self.store = self.site.lab.store.investigations

    def asked(self, question: str = "Why?", **more: Any) -> str:
        """The id of a new investigation."""
        answer = self.post("/investigations", {"question": question, **more})
        assert answer.status_code == 201, answer.text
        investigation_id: str = answer.json["id"]
        return investigation_id

    def pending(self, question: str = "Why?") -> str:
        """The id of one that no worker has taken up."""
        self.site.dispatcher.held = True
        return self.asked(question)

    def write(self, id: str, *texts: str) -> None:
        """Have those texts, of whatever release, in its log."""
        for text in texts:
            self.site.lab.client.xadd(f"boyd:{{disks}}:log:{id}", {"entry": text})

    def twice(self, path: str, body: Any = None, meanwhile: Any = lambda: None) -> list[Any]:
        """The answers to the same request, the first of which the process did not keep."""
        first = self.post(path, body, headers=KEY)
        meanwhile()
        client = self.site.lab.client
        client.delete(*client.keys("*answer*"))
        return [first, self.post(path, body, headers=KEY)]

    def entries(self, id: str) -> list[Entry | None]:
        """Its log."""
        return [record.entry for record in self.store.log(id)]

    def stream(self, id: str, **headers: str) -> Stream:
        """Its event stream."""
        return Stream(self.get(f"/investigations/{id}/events", headers=headers, buffered=False))


class Stream:
    """An event stream, block by block."""

    def __init__(self, answer: Any) -> None:
        assert answer.status_code == 200, answer.text
        self.answer = answer
        self._blocks = self._read()

    def _read(self) -> Iterator[dict[str, str]]:
        for chunk in self.answer.response:
            text = chunk.decode() if isinstance(chunk, bytes) else chunk
            for block in filter(None, text.split("\n\n")):
                yield dict(line.partition(": ")[::2] for line in block.splitlines())

    def next(self) -> dict[str, str]:
        """The next block."""
        return next(self._blocks)

    def rest(self) -> list[dict[str, str]]:
        """All blocks to the end, which has to come by itself."""
        blocks = list(self._blocks)
        self.answer.close()
        return blocks


@contextmanager
def only_archived(case: Case, id: str, folder: Folder) -> Iterator[str]:
    """An investigation that has ended and that only an archive in *folder* still has; its id."""
    wait_until(lambda: case.store.status(id) == "ended")
    archive = Archive(sqlite(folder), case.site.store, agent_id="disks")
    archive.copy()
    case.site.services.archive = archive.access()
    case.site.lab.client.delete(f"boyd:{{disks}}:investigation:{id}", f"boyd:{{disks}}:log:{id}")
    yield id
    archive.close()
