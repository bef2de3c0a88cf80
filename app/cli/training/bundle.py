"""`recoquest bundle`: make a published encoder searchable, without training."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import stoppable


def bundle(
    source: Annotated[
        str, typer.Argument(help="Folder in the format of Hugging Face, or a name on its hub.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the bundle.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Of the bundle; without it the last part of SOURCE.")
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            "--image-size", min=1, help="Side of images in pixels, for an encoder that takes any, as DINOv2."
        ),
    ] = None,
) -> None:
    """Make a bundle of a published encoder, such as CLIP, SigLIP or DINOv2, as it is.

    Its preprocessing comes from its own files. The bundle is written only if its vectors are those of
    transformers, or of open_clip's definition: a cosine of .9999 for eight images and eight texts. It has
    graphs of its towers, by which ONNX Runtime encodes on a CPU.
    """
    from training.conversion.convert import convert
    from training.models.onnx.export import ExportError, export_towers

    with stoppable("Stopped. No bundle was written."):
        made = convert(source, out, name=name or Path(source).resolve().name, size=image_size)
    written, parity = made.bundle, made.parity
    image, text = written.preprocessing.image, written.preprocessing.text
    typer.echo(f"Images: {image.size} x {image.size} pixels ({image.resize}, {image.filter})")
    if written.config.text is None:
        typer.echo("Texts: none, for it has no text tower or no tokenizer")
    else:
        typer.echo(f"Texts: up to {text.max_tokens} tokens")
    texts = "" if parity.texts is None else f", {parity.texts:.6f} for texts"
    typer.echo(f"Lowest cosine with {parity.original}: {parity.images:.6f} for images{texts}")
    try:
        with stoppable(f"Stopped. The bundle {out} is whole; its ONNX graphs are made when it is indexed."):
            export_towers(made.encoder, out)
    except ExportError as error:
        typer.echo(f"On a CPU by PyTorch, which takes longer: {error}")
    else:
        typer.echo("On a CPU by ONNX Runtime")
    typer.echo(f"Encoder: {out}")
