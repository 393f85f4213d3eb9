"""Assets: what was vendored is as it was published, and what is served is kept by browsers."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from api_kit import Site
from console_kit import Browser

STATIC = files("boyd_api.console") / "static"


def test_vendored_files_are_as_they_were_published() -> None:
    lines = (STATIC / "vendored.sha256").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}

    vendored = {path.name for path in STATIC.iterdir() if path.name.endswith(".min.js")}
    assert vendored == listed.keys()
    for name, digest in listed.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest


def test_assets_are_kept_by_browsers_and_changed_ones_have_other_addresses(alice: Browser) -> None:
    source = alice.get("/console/").source
    address = next(part for part in source.split('"') if part.endswith("console.css"))
    response = alice.get(address)

    assert response.status == 200
    assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert alice.get(address.replace("/static/", "/static/0")).status == 404
    assert alice.get("/console/static/x/vendored.sha256").status == 404


def test_the_icon_that_browsers_ask_for_needs_no_login(desk: Site) -> None:
    response = desk.client.get("/favicon.ico")

    assert (response.status_code, response.mimetype) == (200, "image/svg+xml")
    assert response.data == (STATIC / "icon.svg").read_bytes()
    assert response.headers["Cache-Control"] == "public, max-age=86400"
