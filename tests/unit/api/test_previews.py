"""A preview is what the dry run says now, and who answers to an older one is told."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest

from api_kit import Site
from boyd.models import ApprovalItem, Autonomy, CallRequest
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, person
from lab_redis import client_of


class Folder:
    """An API before an agent that asks whether it may delete the files of a folder."""

    def __init__(self, **settings: Any) -> None:
        self.files = 9
        server = fakeredis.FakeServer()
        client = client_of(server)
        usual = {
            "autonomy": Autonomy(mode="approval-required"),
            "dry_run": lambda: f"would delete {self.files} files",
        }
        action = Recorder().action(**{**usual, **settings})
        self.lab = Lab(agent(chooses(choice(params={"size": 1})), action), client=client)
        self.site = Site(self.lab, server)
        self.lab.run()

    @property
    def item(self) -> ApprovalItem:
        """The pending item."""
        [item] = self.lab.store.approvals.page(10).pending
        return item

    def preview(self, **more: Any) -> Any:
        """Ask for a preview of now."""
        return self.site.post(f"/approvals/{self.item.id}/preview", **more)


def test_a_preview_of_now_replaces_the_first_one_which_is_kept() -> None:
    folder = Folder()
    before = folder.item
    folder.files = 33
    answer = folder.preview()
    item = folder.item

    assert answer.status_code == 200
    assert answer.json["preview"]["output"] == "would delete 33 files"
    assert answer.json["firstPreview"]["output"] == "would delete 9 files"
    assert answer.headers["ETag"] == f'"{item.version}"'
    assert item.version == before.version + 1
    assert before.preview_at is not None
    assert item.preview_at is not None
    assert item.preview_at >= before.preview_at


def test_approving_an_outdated_preview_is_refused() -> None:
    folder = Folder()
    etag = folder.site.get(f"/approvals/{folder.item.id}").headers["ETag"]
    folder.files = 33
    folder.preview()
    path = f"/approvals/{folder.item.id}/approve"
    refused = folder.site.post(path, headers={"If-Match": etag})
    again = folder.site.post(path, headers={"If-Match": f'"{folder.item.version}"'})

    assert (refused.status_code, refused.json["type"]) == (412, "/problems/changed")
    assert (again.status_code, again.json["success"]) == (200, True)


def test_a_preview_that_says_the_same_changes_nothing_but_its_time() -> None:
    folder = Folder()
    before = folder.item
    folder.lab.client.hset(f"boyd:{{test}}:approval:{before.id}", "previewAt", 1)
    folder.preview()
    item = folder.item

    assert (item.version, item.preview, item.first_preview) == (
        before.version,
        before.preview,
        None,
    )
    assert item.preview_at is not None
    assert item.preview_at >= before.created_at


def test_approvers_but_not_readers_may_refresh_a_preview() -> None:
    folder = Folder()

    assert folder.preview(headers=folder.site.key("approvals", "read")).status_code == 200
    assert folder.preview(headers=folder.site.key("read")).status_code == 403


def test_a_resolved_item_gets_no_new_preview() -> None:
    folder = Folder()
    id = folder.item.id
    folder.lab.resolver.answer(id, "denied", person("bob"))
    answer = folder.site.post(f"/approvals/{id}/preview")
    unknown = folder.site.post("/approvals/none/preview")

    assert (answer.status_code, answer.json["type"]) == (404, "/problems/not-pending")
    assert unknown.status_code == 404
    approval = folder.lab.store.approvals.get(id)
    assert approval is not None
    assert not folder.lab.store.approvals.refresh(id, approval.preview or pytest.fail("no preview"))


def test_an_action_without_a_dry_run_needs_no_worker_to_say_so() -> None:
    folder = Folder(dry_run=None)
    folder.site.dispatcher.held = True
    answer = folder.preview()

    assert (answer.status_code, answer.json.get("preview")) == (200, None)


def test_a_rollback_shows_what_it_undoes_and_not_what_the_action_would_do() -> None:
    folder = Folder(rollback=lambda: "back", autonomy=Autonomy())
    request = CallRequest(
        kind="rollback",
        action="p:do",
        undoes="loop:1",
        requires_approval=True,
        actor=person("ann"),
    )
    folder.lab.launcher.call(request, None)
    folder.lab.deliver()
    answer = folder.preview()

    assert (answer.status_code, answer.json.get("preview")) == (200, None)
    assert answer.json["undone"]["output"] == "done"


def test_a_preview_that_takes_longer_is_not_waited_for() -> None:
    folder = Folder()
    folder.site.dispatcher.held = True
    answer = folder.preview(query_string={"wait": 0})
    folder.files = 33
    folder.lab.deliver()

    assert answer.status_code == 202
    assert answer.json["preview"]["output"] == "would delete 9 files"
    assert folder.item.preview is not None
    assert folder.item.preview.output == "would delete 33 files"


def test_a_dry_run_that_fails_now_is_what_the_preview_says() -> None:
    fails: list[bool] = []

    def dry_run() -> str:
        if fails:
            raise OSError("no route")
        return "fine"

    folder = Folder(dry_run=dry_run)
    fails.append(True)
    preview = folder.preview().json["preview"]

    assert (preview["success"], preview["error"]) == (False, "OSError: no route")


def test_a_changed_preview_emits_one_event() -> None:
    folder = Folder()
    folder.files = 33
    folder.preview()
    folder.preview()
    kinds = [event.kind for event in folder.lab.store.events.after("0-0", 100)]

    assert kinds.count("approval.preview") == 1
