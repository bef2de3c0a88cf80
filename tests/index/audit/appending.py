"""A process that appends events to the trail of a catalogue until it is stopped, or so many."""

import sys

from index.audit.chain import Trail
from index.audit.event import Actor, Event
from index.catalogue import open_catalogue
from tests.index.audit.trails import KEY


def main() -> None:
    """Append batches of different lengths, and say on standard output what has been acknowledged."""
    url, name, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
    trail = Trail(open_catalogue(url), KEY)
    number = 0
    for batch in range(batches):
        events = []
        for _ in range(1 + (batch * 7) % 5):
            number += 1
            events.append(
                Event(
                    action="search",
                    actor=Actor("key", name),
                    collection="c",
                    objects=[f"{name}-{number}", "shared"],
                    details={"number": number},
                )
            )
        trail.append(events)
        print(number, flush=True)  # noqa: T201
    trail.catalogue.close()


if __name__ == "__main__":
    main()
