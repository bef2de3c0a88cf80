"""`recoquest demo`: the whole way on generated data, from nothing to a page that searches."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.endings import stoppable
from app.cli.listening import bind, url_of


def demo(
    folder: Annotated[Path, typer.Option(help="Where everything is kept and found again.")] = Path(".demo"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    images: Annotated[int, typer.Option(min=100, help="Generated images in each of the two sets.")] = 1000,
    serve: Annotated[bool, typer.Option(help="Serve at the end.")] = True,
) -> None:
    """Make sample data, train two small encoders, index both sets and serve the search."""
    with bind(host, port) as taken:
        address = url_of(taken)
        with stoppable("Stopped. What was finished is kept; the same command goes on from there."):
            from app.cli.demo_stages import prepare

            settings = prepare(folder, images)
        if not serve:
            typer.echo("Everything is ready; the same command without --no-serve serves it.")
            return
        typer.echo(f"\nOpen {address} and type a sentence or drop an image. Ctrl-C stops.\n")
        with stoppable("Stopped. The same command serves again at once."):
            from app.cli.serve import serve_on

            serve_on(taken, settings)
