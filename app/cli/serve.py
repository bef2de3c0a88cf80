"""`recoquest serve`: serve the search over HTTP, with its web page."""

import gc
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.errors import leave_hanging
from app.cli.options import Device, EnvFile, Home, Installation
from training.common.errors import RecoquestError
from training.common.host import keep_waiting_threads_quiet

if TYPE_CHECKING:
    from app.settings import Settings


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on [RECOQUEST_HOST, 127.0.0.1].")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one [RECOQUEST_PORT, 8000].")
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that answer on the port; they share vectors and limits.")
    ] = 1,
    home: Home = None,
    device: Device = None,
    env_file: EnvFile = None,
) -> None:
    """Serve the search over HTTP, with its page at / and its documentation at /docs."""
    keep_waiting_threads_quiet()
    from app.edge.server import require_limits
    from app.settings import load_settings, unknown_variables

    require_limits()
    settings = load_settings(env_file, host=host, port=port, home=home, device=device)
    for name in unknown_variables():
        typer.echo(f"{name} is not a setting and has no effect.", err=True)
    with bind(settings.host, settings.port) as taken:
        refuse_open_network(taken, settings)
        typer.echo(f"Serving on {url_of(taken)}", err=True)
        serve_on(taken, settings, processes)


def serve_on(taken: socket.socket, settings: "Settings", processes: int = 1) -> None:
    """Serve on an address that was taken, until a signal stops the process."""
    import uvicorn

    from app.application import create_app
    from app.cli.processes import share_out, supervise
    from app.edge.logging import configure_logging
    from app.edge.protocol import bounded
    from app.edge.server import GracefulServer, allow_descriptors
    from app.edge.sharing import Sharing
    from app.encoding.processes import import_for
    from app.engine import open_engine, service_patience
    from app.health.readiness import generations_to_load

    # A catalogue that cannot be used ends the command with a sentence, not the server with a traceback.
    with closing(open_engine(settings, service_patience(settings))) as engine:
        _make_first_key(Installation(settings, engine))
        if processes > 1:
            import_for([active.bundle for active in generations_to_load(engine)], settings.device)
    configure_logging(settings.log_level)
    connections = allow_descriptors(settings.max_connections)
    settings = settings.model_copy(update={"max_connections": connections})
    settings, sharing = share_out(settings, processes), Sharing(processes)
    application = create_app(settings, give_up=leave_hanging, sharing=sharing)
    # Resolves all routes, which takes half a second; during the first request, all others would wait.
    application.openapi()
    config = uvicorn.Config(
        application,
        http=bounded(application.connections, application.stages.shed),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # The address of a connection stays its own: `clients_of` adds the one that a proxy names.
        proxy_headers=False,
    )
    # Garbage collections leave out all that lives as long as the process: they hold up every thread.
    gc.collect()
    gc.freeze()
    server = GracefulServer(config, application.stopping)
    if processes > 1:
        supervise(taken, sharing, lambda listener: server.run(sockets=[listener]))
    else:
        server.run(sockets=[taken])


def refuse_open_network(taken: socket.socket, settings: "Settings") -> None:
    """Keep what needs no key from other machines, unless the settings say that it is meant for them."""
    from app.access.hosts import is_loopback

    address = taken.getsockname()[0]
    if settings.open_reading and not settings.open_network and not is_loopback(address):
        raise RecoquestError(
            f"With RECOQUEST_OPEN_READING, everybody who reaches {address} could see all images without a "
            "key: leave it out and give readers keys (`recoquest keys create`), or set "
            "RECOQUEST_OPEN_NETWORK=true."
        )


def _make_first_key(installation: Installation) -> None:
    """Give the administrator of a new service a key; it is printed once, and not to the log."""
    from index.keys.api_keys import create_first_key

    if installation.settings.admin_key is not None:
        return
    with installation.catalogue.write() as session:
        made = create_first_key(session)
        if made is not None:
            installation.record("create", "serve", session=session, key=made.key.id, name=made.key.name)
    if made is not None:
        typer.echo(
            f"The administrator's key, named {made.key.name!r}. It has every right; keep it, for it is shown "
            f"this once:\n\n    {made.text}\n\nMore keys: recoquest keys create NAME --role reader",
            err=True,
        )


def bind(host: str, port: int) -> socket.socket:
    """Take an address: nobody else can, and who connects before it is served waits."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise RecoquestError(f"{host!r} is not an address of this machine: give another --host.") from None
    taken = socket.socket(family, kind, protocol)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind(address)
        # Linux lets others take an address too until one of them listens.
        taken.listen()
    except OSError as error:
        taken.close()
        raise RecoquestError(
            f"Port {port} of {host} cannot be used ({error.strerror}): give another with --port."
        ) from None
    return taken


def url_of(taken: socket.socket) -> str:
    """The address a browser on this machine opens."""
    host, port = taken.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
