"""Pseudonyms: fixed by key, kind and value, and by nothing else."""

from typing import Final

from training.clinical.pseudonyms import keyed_hash, shift_days

KEY: Final = bytes(range(32))


def test_hashes_and_shifts_stay_as_they_are() -> None:
    # Hashes of earlier imports are in catalogues: another hash would make one patient two.
    assert keyed_hash(KEY, "patient", "4711") == "7e4b255c2db22401"
    assert keyed_hash(KEY, "patient", "Müller\u3042") == "b9934606e4b9cfbb"
    assert shift_days(KEY, "4711") == 231


def test_key_kind_and_value_count_and_outer_spaces_do_not() -> None:
    ways = ((KEY, "patient", "4711"), (KEY, "accession", "4711"), (KEY, "patient", "47 11"))
    assert len({keyed_hash(*way) for way in (*ways, (bytes(32), "patient", "4711"))}) == 4
    assert keyed_hash(KEY, "patient", " 4711  ") == keyed_hash(KEY, "patient", "4711")
    assert shift_days(KEY, " 4711  ") == shift_days(KEY, "4711")


def test_shifts_are_one_to_365_days_and_spread_over_the_year() -> None:
    shifts = {shift_days(KEY, str(number)) for number in range(5000)}
    assert shifts == set(range(1, 366))
