"""`boyd observers`: how the observers of an agent do."""

from __future__ import annotations

import click

from boyd.cli import output
from boyd.cli.connection import Api
from boyd.cli.options import api_options
from boyd.cli.status import OBSERVED, observer_cells
from boyd.models.answers import ObserverList


@click.command()
@output.output_option
@api_options
def observers(api: Api, form: str) -> None:
    """List an agent's observers with their health."""
    found = api.agent.get("/observers", ObserverList)
    if output.print_data(form, found):
        return
    if not found.observers:
        output.say("The agent has no observers.")
        return
    rows = [[one.id, *observer_cells(one, api.agent.now())] for one in found.observers]
    output.print_table(OBSERVED, rows)
