"""`recoquest hl7`: take reports that an information system sends as HL7 v2."""

from typing import Annotated

import typer

from app.cli.operate.serve import bind
from app.cli.options import Device, EnvFile, Home, indexed, query_device
from training.errors import RecoquestError


class OpenListenerError(RecoquestError):
    """A listener that other machines would reach."""


def hl7(
    collection: Annotated[str, typer.Argument(help="Name of the collection whose images get the reports.")],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 2575,
    allow_network: Annotated[
        bool,
        typer.Option(
            "--allow-network", help="Listen on an address that other machines reach; MLLP asks for no key."
        ),
    ] = False,
    home: Home = None,
    device: Device = None,
    env_file: EnvFile = None,
) -> None:
    """Take reports (ORU^R01) over MLLP, each acknowledged once it is written; Ctrl-C ends it."""
    import asyncio
    import signal
    from collections.abc import Callable

    from app.access.hosts import is_loopback
    from app.observability.logging import configure_logging
    from app.reports.intake import ReportIntake
    from app.reports.listener import Listener, run_listener
    from app.settings import load_settings
    from index.keys.patient_key import patient_key

    def stop_by_signals(stop: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)

    settings = load_settings(env_file, home=home, device=device)
    settings = settings.model_copy(update={"device": query_device(settings)})
    with indexed(settings) as engine, bind(host, port) as taken:
        address, number = taken.getsockname()[:2]
        if not allow_network and not is_loopback(address):
            raise OpenListenerError(
                f"Everybody who reaches {address} could write reports: MLLP asks for no key. Listen on "
                "127.0.0.1 behind a tunnel or an interface engine, or give --allow-network."
            )
        engine.active(collection)
        configure_logging(settings.log_level)
        typer.echo(f"Listening for HL7 on {address}:{number}, for {collection}.", err=True)
        intake = ReportIntake(engine, settings, collection, "hl7")
        run_listener(Listener(intake, patient_key(settings.home)), taken, stop_by_signals)
