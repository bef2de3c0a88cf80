"""Sign-ins that have begun: paths to come back to, and the cookie of the browser that began one."""

from urllib.parse import urljoin, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from app.access.oidc import COOKIE, LIFETIME_S, begin_attempt, find_attempt, is_own_path, keep_attempt
from app.access.sessions import SessionSigner
from app.edge.principal import Principal

SIGNER = SessionSigner(b"s" * 32)
HERE = "https://images.example.org/"


@pytest.mark.parametrize("path", ["/", "/operate", "/images/", "/a/b-c_d.e~f/%C3%A9", "/a;b=c,d@e:f"])
def test_paths_of_this_service_are_taken(path: str) -> None:
    assert is_own_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "", "operate", "//evil.example", "/\\evil.example", "\\/evil.example", "/a//b", "///", "/ evil",
        "https://evil.example", "https:/evil.example", "javascript:alert(1)", "/\tevil", "/\n/evil.example",
        "/\x00", "/a\r\nSet-Cookie: x=y", "/a?b", "/a#b", "/é", "/a/\u2028", "/" + "a" * 1_000,
    ],
)  # fmt: skip
def test_other_addresses_are_refused(path: str) -> None:
    assert not is_own_path(path)
    with pytest.raises(ValueError, match="no path"):
        begin_attempt(SIGNER, path)


@given(st.text(st.sampled_from("/\\.:@ae%?#\t\n\x00") | st.characters(), max_size=12).map("/".__add__))
@example("/..//evil.example")
@example("/.//evil.example")
def test_a_path_that_is_taken_leads_to_the_same_origin(path: str) -> None:
    if not is_own_path(path):
        return
    # Browsers leave tabs and ends of lines out, and take a backslash for a slash.
    as_browsers_read = "".join(char for char in path if char not in "\t\r\n").replace("\\", "/")
    found = urlsplit(urljoin(HERE, as_browsers_read))
    assert (found.scheme, found.netloc) == ("https", "images.example.org")
    assert not as_browsers_read.startswith("//")
    assert found.path.startswith("/")
    assert path.isascii()
    assert path.isprintable()


def _request(cookie: str | None) -> Request:
    headers = [] if cookie is None else [(b"cookie", f"{COOKIE}={cookie}".encode("latin-1"))]
    scope = {
        "type": "http", "method": "GET", "path": "/", "root_path": "", "scheme": "https", "query_string": b"",
        "server": ("localhost", 443), "headers": headers,
    }  # fmt: skip
    return Request(scope)


def _sealed(signer: SessionSigner = SIGNER, return_to: str = "/operate") -> tuple[str, str]:
    attempt, response = begin_attempt(signer, return_to), Response()
    keep_attempt(_request(None), response, signer, attempt)
    first, *parts = response.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=lax", "Secure", "Path=/", f"Max-Age={LIFETIME_S}"} == set(parts)
    return first.removeprefix(f"{COOKIE}="), attempt.state


def test_an_answer_is_taken_from_the_browser_that_began_with_its_state_until_it_ends() -> None:
    now = [1_000_000.0]
    signer = SessionSigner(b"s" * 32, lambda: now[0])
    sealed, state = _sealed(signer)
    found = find_attempt(_request(sealed), signer, state)
    assert found is not None
    assert (found.state, found.return_to) == (state, "/operate")
    # Another browser, another sign-in of the same browser, and none at all.
    other_sealed, other_state = _sealed(signer)
    assert find_attempt(_request(None), signer, state) is None
    assert find_attempt(_request(other_sealed), signer, state) is None
    assert find_attempt(_request(sealed), signer, other_state) is None
    assert find_attempt(_request(sealed), signer, "") is None
    assert find_attempt(_request(sealed), signer, "é") is None
    now[0] += LIFETIME_S - 1
    assert find_attempt(_request(sealed), signer, state) == found
    now[0] += 1
    assert find_attempt(_request(sealed), signer, state) is None


@given(st.data())
def test_a_changed_cookie_is_no_sign_in(data: st.DataObject) -> None:
    sealed, state = _sealed()
    # The last character of unpadded base64 may have bits that say nothing.
    place = data.draw(st.integers(0, len(sealed) - 2))
    # Cookies differ from run to run, and hypothesis must be able to draw the same again.
    others = [one for one in "Az09-_." if one != sealed[place]]
    character = others[data.draw(st.integers(0, 5))]
    changed = sealed[:place] + character + sealed[place + 1 :]
    assert find_attempt(_request(changed), SIGNER, state) is None


def test_a_session_is_no_sign_in_and_the_other_way_round() -> None:
    person = Principal("token", "https://id#somebody", "Ada", {})
    session = SIGNER.seal(SIGNER.begin(person, None))
    sealed, state = _sealed()
    assert SIGNER.open(sealed) is None
    assert find_attempt(_request(session), SIGNER, state) is None
    assert find_attempt(_request(sealed), SessionSigner(b"t" * 32), state) is None


def test_sign_ins_share_no_secret() -> None:
    one, other = (begin_attempt(SIGNER, "/") for _ in range(2))
    drawn = [one.state, one.nonce, one.verifier, other.state, other.nonce, other.verifier]
    assert len(set(drawn)) == len(drawn)
    # RFC 7636, section 4.1.
    assert all(43 <= len(value) <= 128 for value in drawn)
