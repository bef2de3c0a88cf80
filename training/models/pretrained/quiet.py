"""Silence of transformers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers.utils import logging as transformers_logging


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from warnings, such as one of each weight that a tower leaves out, and from bars."""
    logging: Any = transformers_logging
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
