"""The content type of a form, judged before any of its body is read."""

import codecs
from http import HTTPStatus
from typing import Final

from python_multipart.multipart import parse_options_header

from app.http.problem_kinds import UNSUPPORTED, Kind
from app.http.problems import RequestError

_FORM: Final = "multipart/form-data"
UNREADABLE_FORM: Final = Kind("bad-request", "The form cannot be read", HTTPStatus.BAD_REQUEST)
# The longest of RFC 2046; a body is searched for it.
_MAX_BOUNDARY: Final = 70
# Any bytes have texts in these, and none of them half of a character.
_CHARSETS: Final = frozenset({"utf-8", "ascii", "iso8859-1"})


def check_form_type(content_type: str) -> None:
    """Refuse a form whose boundary or charset cannot be used.

    Raises:
        RequestError: With status 400 for the boundary, 415 for the charset.
    """
    _, parameters = parse_options_header(content_type)
    boundary = parameters.get(b"boundary", b"")
    if not boundary:
        raise RequestError(
            UNREADABLE_FORM,
            f"The content type is {_FORM} without a boundary: let the HTTP client write it.",
        )
    if len(boundary) > _MAX_BOUNDARY or not (boundary.isascii() and boundary.decode("ascii").isprintable()):
        raise RequestError(
            UNREADABLE_FORM,
            f"The boundary of the form is longer than {_MAX_BOUNDARY} characters, or not of ASCII: let "
            "the HTTP client write it.",
        )
    if not _is_known(parameters.get(b"charset", b"utf-8").decode("latin-1")):
        raise RequestError(UNSUPPORTED, "The charset of the form is not supported: send its texts as UTF-8.")


def _is_known(charset: str) -> bool:
    try:
        return codecs.lookup(charset).name in _CHARSETS
    except (LookupError, ValueError):
        return False
