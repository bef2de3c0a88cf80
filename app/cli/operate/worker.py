"""`recoquest worker`: do the jobs that wait, beside the service."""

from typing import Annotated

import typer

from app.cli.options import Device, EnvFile, Home


def worker(
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Jobs done at the same time.")] = 1,
    home: Home = None,
    device: Device = None,
    env_file: EnvFile = None,
) -> None:
    """Do jobs as they come (see `recoquest jobs`); Ctrl-C leaves what was begun to the next worker."""
    from app.jobs.worker import Worker
    from app.observability.logging import configure_logging
    from app.server.limits import allow_descriptors, require_limits
    from app.settings import load_settings

    require_limits()
    settings = load_settings(env_file, home=home, device=device)
    configure_logging(settings.log_level)
    allow_descriptors(0)
    working = Worker(settings)
    typer.echo(f"Working on the jobs of {settings.home}.", err=True)
    working.work(at_once)
