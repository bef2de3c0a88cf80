"""Ages as data sets write them."""

from training.data.readers.values import dicom_age_years, parse_number


def age_in_years(text: str) -> int | float | None:
    """Years of an age such as 58, 58.0 or, as in DICOM, 058Y or 006M; None for anything else."""
    age = dicom_age_years(text)
    if age is None:
        age = parse_number(text.strip())
    if age is None or age < 0:
        return None
    return int(age) if age == int(age) else age
