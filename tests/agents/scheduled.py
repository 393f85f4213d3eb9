"""An agent whose iterations start by the clock of Vienna, at half past two in the night."""

from __future__ import annotations

from boyd import Agent

nightly = Agent("nightly", schedule="30 2 * * *", timezone="Europe/Vienna")
