"""Ages and dates of metadata, for values of any kind."""

from datetime import date

from app.metadata_values import age_band, day_of


def test_an_age_is_in_one_of_the_bands_up_to_90() -> None:
    bands = {0: "0-9", 29: "20-29", 89: "80-89", 90: "90+", 120: "90+"}
    assert {age: age_band({"age": age}) for age in bands} == bands
    assert [age_band({"age": age}) for age in (-1, True, 30.0, "30")] == [None] * 4
    assert age_band({}) is None


def test_a_day_is_the_beginning_of_a_date() -> None:
    days = {"2024-01-15": date(2024, 1, 15), "2024-01-15T10:30": date(2024, 1, 15), "2024-01": None}
    assert {day: day_of({"date": day}) for day in days} == days
    assert (day_of({"date": 20240115}), day_of({})) == (None, None)
