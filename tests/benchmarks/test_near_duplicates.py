"""The benchmark of near-duplicates finds what it has made, and counts it right."""

from pathlib import Path

from tests.benchmarks.near_duplicates import CHANGES, run
from tests.index.pictures import smooth_picture
from tests.index.samples import make_bundle
from training.common.manifest import Record, read_manifest, write_manifest


def test_made_copies_are_found_and_counted_by_their_change(tmp_path: Path) -> None:
    data = tmp_path / "pictures"
    data.mkdir()
    # The last two are of one group, so that only one of them is taken.
    for number in range(13):
        smooth_picture(number).save(data / f"{number:02d}.png")
    names = [f"{number:02d}" for number in range(13)]
    records = [Record(id=name, image=f"{name}.png", split="test") for name in names[:11]]
    records += [Record(id=name, image=f"{name}.png", split="test", group="g") for name in names[11:]]
    write_manifest(data, records)
    work = tmp_path / "work"
    bundle = make_bundle(tmp_path / "bundle").folder
    outcome = run(work, bundle, read_manifest(data), images=100, copies=10, seed=0)
    assert outcome.images == 12 + 10
    assert [len(pairs) for pairs in outcome.made.values()] == [2] * len(CHANGES)
    made = frozenset().union(*outcome.made.values())
    assert outcome.found == outcome.right
    assert outcome.right == made
    assert outcome.named <= made
    assert outcome.looked_at >= len(made)
