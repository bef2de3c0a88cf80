"""Reads scripts of the page as far as their texts: literals, each with the place where it stands."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    |(?P<template>`)
    |(?P<name>[#A-Za-z_$][\w$]*)
    |(?P<number>\d[\w.]*)
    |(?P<mark>=>|\?\?=?|\?\.|\.\.\.|[=!]==?|[<>]=|&&|\|\||\*\*|[-+*/|&]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_PATTERN: Final = re.compile(r"/(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
# Behind these a slash begins a pattern, and a brace an object.
_KEYWORDS: Final = frozenset(
    ["return", "typeof", "case", "of", "in", "yield", "await", "delete", "void", "throw", "else", "do", "new"]
)
_CONTROL: Final = frozenset(
    ["if", "for", "while", "switch", "catch", "return", "function", "of", "in", "await", "typeof", "case"]
)
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Token:
    """A piece of a script; of a template the texts between its values."""

    kind: str
    text: str
    line: int
    chunks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Literal:
    """A text in a script, with its place.

    Attributes:
        callee: Function of whose argument it is a part, as `h`; empty for none.
        argument: Number of that argument, from 0.
        first: First argument of the call where that is a text.
        name: Property or variable to which it is given; empty for none.
        compared: Whether it is compared with something.
    """

    chunks: tuple[str, ...]
    line: int
    callee: str
    argument: int
    first: str
    name: str
    compared: bool


@dataclass
class Call:
    """A call with texts as its first argument, and the names of its second where that is an object."""

    callee: str
    line: int
    keys: list[str] = field(default_factory=list)
    values: set[str] | None = None


@dataclass
class _Frame:
    opening: str
    callee: str = ""
    is_object: bool = False
    argument: int = 0
    first: str = ""
    name: str = ""
    ternaries: int = 0
    names: set[str] = field(default_factory=set)
    spreads: bool = False
    call: Call | None = None


def tokens(script: str) -> Iterator[Token]:
    """Give the tokens of a script; the values of a template follow it in parentheses."""
    yield from _tokens(script, 0, len(script))


def _tokens(script: str, place: int, end: int) -> Iterator[Token]:
    last = Token("mark", ";", 0)
    while place < end:
        pattern = _PATTERN.match(script, place) if script[place] == "/" and _begins_value(last) else None
        line = script.count("\n", 0, place) + 1
        if pattern and not script.startswith(("//", "/*"), place):
            place = pattern.end()
            last = Token("pattern", pattern.group(), line)
            yield last
            continue
        found = _TOKEN.match(script, place)
        assert found is not None, f"line {line}"
        kind = str(found.lastgroup)
        place = found.end()
        if kind == "template":
            chunks, values, place = _template(script, place)
            yield Token("template", "", line, chunks)
            for start, stop in values:
                yield Token("mark", "(", line)
                yield from _tokens(script, start, stop)
                yield Token("mark", ")", line)
            last = Token("string", "", line)
        elif kind != "blank":
            text = found.group()
            last = Token(kind, _unquoted(text) if kind == "string" else text, line)
            yield last


def _begins_value(last: Token) -> bool:
    if last.kind == "name":
        return last.text in _KEYWORDS
    return last.kind == "mark" and last.text not in {")", "]", "}"}


def _template(script: str, place: int) -> tuple[tuple[str, ...], list[tuple[int, int]], int]:
    chunks, values, chunk = [], [], ""
    while script[place] != "`":
        if script.startswith("${", place):
            start, depth = place + 2, 1
            place = start
            while depth:
                if script[place] == "`":
                    place = _template(script, place + 1)[2] - 1
                depth += {"{": 1, "}": -1}.get(script[place], 0)
                place += 1
            values.append((start, place - 1))
            chunks.append(chunk)
            chunk = ""
        else:
            width = 2 if script[place] == "\\" else 1
            chunk += script[place : place + width]
            place += width
    return tuple(_unescaped(one) for one in [*chunks, chunk]), values, place + 1


def _unquoted(text: str) -> str:
    return _unescaped(text[1:-1])


def _unescaped(text: str) -> str:
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text)


class Reader:
    """Walks through a script once.

    Attributes:
        literals: All texts but names of properties and of modules.
        calls: Calls of `say`, `parts` and `term`.
        imports: Names of modules.
    """

    CALLEES: Final = ("say", "parts", "term", "stamp")

    def __init__(self, script: str) -> None:
        self.literals: list[Literal] = []
        self.calls: list[Call] = []
        self.imports: list[str] = []
        self._frames = [_Frame("")]
        self._tokens = [*tokens(script), Token("mark", ";", 0)]
        for place, token in enumerate(self._tokens[:-1]):
            before = self._tokens[place - 1] if place else Token("mark", ";", 0)
            self._take(before, token, self._tokens[place + 1])

    def _take(self, before: Token, token: Token, after: Token) -> None:
        frame = self._frames[-1]
        if token.kind in {"string", "template"}:
            self._take_literal(before, token, after)
        elif token.kind == "name" and frame.is_object and after.text in {",", "}", ":"}:
            if before.text in {"{", ","}:
                frame.names.add(token.text)
        elif token.text == "..." and frame.is_object:
            frame.spreads = True
        if token.kind != "mark":
            return
        if token.text in _CLOSING:
            self._open(before, token)
        elif token.text in _CLOSING.values():
            self._close()
        elif token.text == "?":
            frame.ternaries += 1
        elif token.text == ":":
            if frame.ternaries:
                frame.ternaries -= 1
            else:
                frame.name = before.text
        elif token.text == "=":
            frame.name = before.text
        elif token.text in {",", ";"}:
            frame.argument += 1
            frame.name, frame.ternaries = "", 0

    def _take_literal(self, before: Token, token: Token, after: Token) -> None:
        frame = self._frames[-1]
        if before.text in {"from", "import"} and before.kind == "name":
            self.imports.append(token.text)
            return
        if frame.is_object and after.text == ":" and not frame.ternaries:
            frame.names.add(token.text)
            return
        compared = before.text in {"===", "!==", "case"} or after.text in {"===", "!=="}
        place = self._place()
        chunks = token.chunks if token.kind == "template" else (token.text,)
        if place.callee and not place.is_object and place.argument == 0:
            place.first = place.first or chunks[0]
        # Not a part of another text.
        if frame.call is not None and frame.argument == 0 and not compared:
            frame.call.keys.append("\0".join(chunks))
        named = next((one.name for one in reversed(self._frames) if one.name or one.callee), "")
        callee = "" if place.is_object else place.callee
        self.literals.append(
            Literal(chunks, token.line, callee, place.argument, place.first, named, compared)
        )

    def _place(self) -> _Frame:
        """The innermost call, object or block, beyond lists and parentheses."""
        for frame in reversed(self._frames):
            if frame.opening in {"", "{"} or frame.callee:
                return frame
        return self._frames[0]

    def _open(self, before: Token, token: Token) -> None:
        frame = _Frame(token.text)
        is_name = before.kind == "name"
        if token.text == "(" and is_name and before.text not in _CONTROL:
            frame.callee = before.text
            if before.text in self.CALLEES:
                frame.call = Call(before.text, token.line)
        elif token.text == "{":
            opens_block = before.text in {")", "=>", "else", "try", "finally", "do", ";", "{", "}"}
            frame.is_object = not opens_block and (not is_name or before.text in _KEYWORDS)
        self._frames.append(frame)

    def _close(self) -> None:
        frame = self._frames.pop()
        around = self._frames[-1]
        if frame.call is not None and frame.call.keys:
            self.calls.append(frame.call)
        if frame.is_object and around.call is not None and around.argument == 1 and not frame.spreads:
            around.call.values = frame.names
        elif frame.call is not None and frame.argument == 0 and frame.call.values is None:
            frame.call.values = set()


def table(script: str) -> dict[str, dict[str, str]]:
    """Return a table of texts: forms by key, of which a text without forms has `other` alone.

    Raises:
        AssertionError: The script is no table of texts, or names a key twice.
    """
    found: dict[str, dict[str, str]] = {}
    key, form = "", ""
    meaningful = [token for token in tokens(script) if token.text not in {",", ";"}]
    start = next(place for place, token in enumerate(meaningful) if token.text == "{") + 1
    depth = 1
    for before, token in zip(meaningful[start:], meaningful[start + 1 :], strict=False):
        depth += {"{": 1, "}": -1}.get(before.text if before.kind == "mark" else "", 0)
        if token.text == ":" and token.kind == "mark":
            if depth == 1:
                key, form = before.text, "other"
                assert key not in found, f"{key} twice"
                found[key] = {}
            else:
                form = before.text
        elif before.text == ":" and before.kind == "mark" and token.kind == "string":
            found[key][form] = token.text
    return found
