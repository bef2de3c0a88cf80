"""Effects of cues, and tables of cues by effect and side."""

from typing import Literal

# Effects of a cue on findings: `unstated` leaves them out, `past` does so with all but support devices, which
# stay, `none` covers words that would be other cues, and `end` is where the scope of others ends.
Effect = Literal["none", "unstated", "past", "uncertain", "absent", "end"]
# Places of those findings: behind the cue, before it, or on both sides.
Side = Literal["behind", "before", "both"]
CueTable = tuple[tuple[Effect, Side, tuple[str, ...]], ...]
