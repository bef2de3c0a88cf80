"""Fields of samples by their names."""

import math

from training.importing.columns import describe


def test_fields_by_name() -> None:
    found = describe(
        {
            "Caption": "A  dog.",
            "sentences": ["A dog.", "Two dogs.", "nan", None],
            "label": 7,
            "tags": ["a", "b", "a"],
            "patient_id": 12,
            "id": "x",
            "split": "odd",
            "group": "second",
            "age": 60,
            "empty": "",
            "sizes": [1, 2],
            "mixed": [1, {"a": 2}],
            "object": {"a": 1},
            "nan": math.nan,
            "infinite": math.inf,
            "missing": None,
            "gaps": [1.5, math.nan, None, "NULL", True],
            "unknown": [math.nan, None],
            "hash": 2**64 - 1,
            "huge": -(10**400),
        }
    )
    assert found.texts == ("A dog.", "Two dogs.")
    assert found.labels == ("7", "a", "b")
    assert found.group == "12"
    assert found.metadata == {
        "source_id": "x", "source_split": "odd", "source_group": "second", "age": 60, "sizes": (1, 2),
        "gaps": (1.5, True), "hash": str(2**64 - 1), "huge": str(-(10**400)),
    }  # fmt: skip


def test_reports_by_column() -> None:
    report = "HISTORY: Long cough, since May.\nFINDINGS: The heart is large.\n"
    found = describe({"report": report})
    assert (found.report, found.texts) == (report.strip(), ("The heart is large.",))
    plain = describe({"report": "First sentence. Second sentence."})
    assert plain.texts == ("First sentence.", "Second sentence.")
    both = describe({"report": report, "impression": "Large heart.", "text": "A film."})
    assert (both.report, both.texts) == (report.strip(), ("A film.", "Large heart."))


def test_names_in_other_languages() -> None:
    found = describe({"Befund": "Kein Erguss.", "Schlagwörter": ["Herz"], "Légende": "un chien"})
    assert (found.report, found.labels) == ("Kein Erguss.", ("Herz",))
    assert found.texts == ("un chien", "Kein Erguss.")
