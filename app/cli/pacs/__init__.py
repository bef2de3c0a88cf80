"""`recoquest pacs`: films from image archives."""

import typer

from app.cli.pacs.sync import sync

pacs = typer.Typer(name="pacs", no_args_is_help=True, help="Take films over from an image archive (PACS).")
pacs.callback()(lambda: None)
pacs.command()(sync)
