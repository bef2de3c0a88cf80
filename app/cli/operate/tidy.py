"""`recoquest tidy`: remove what is of no use any more."""

import typer

from app.cli.options import Home, indexed


def tidy(home: Home = None) -> None:
    """Remove old generations, reports, folders of jobs, and files that are unused or unfinished."""
    from app.jobs.housekeeping import drop_superseded_generations, remove_old_folders
    from app.lifecycle.build_generation import name_kept
    from app.reports.intake import ReportIntake
    from app.settings import load_settings
    from index.files.stale import UNTOUCHED_SECONDS, remove_stale, unfinished
    from index.generations.retention import drop_old_generations
    from index.writes.garbage import collect_garbage

    settings = load_settings(home=home)
    with indexed(settings) as engine:
        for collection in engine.names():
            dropped = drop_old_generations(engine.home, collection, settings.keep_generations)
            if dropped:
                typer.echo(f"{collection}: dropped generation {', '.join(map(str, dropped))}.")
            name_kept(engine, collection, settings.keep_generations)
            late = ReportIntake(engine, settings, collection, "tidy").drop_late()
            if late:
                typer.echo(f"{collection}: forgot {late:,} reports that waited for their images.")
        for collection, number in drop_superseded_generations(settings, engine.home):
            typer.echo(f"{collection}: dropped generation {number}, which was never activated.")
        folders = remove_old_folders(settings, engine.home.catalogue)
        if folders:
            typer.echo(f"Removed what was written by job {', '.join(map(str, folders))}.")
        collect_garbage(engine.home)
        left = remove_stale(unfinished(settings.home), UNTOUCHED_SECONDS)
        if left:
            typer.echo(f"Removed {left:,} unfinished files of processes that were killed.")
    typer.echo("Garbage is removed.")
