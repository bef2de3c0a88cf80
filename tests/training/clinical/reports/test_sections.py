"""Clinical sections of reports, and what identifies people in them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.clinical.findings import find_findings
from training.clinical.reports.identifiers import MARK, without_identifiers
from training.clinical.reports.sections import clinical_sections, place_in_report


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(section.heading, section.text) for section in clinical_sections(text)]


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("FINDINGS: Clear. IMPRESSION: Normal.", [("FINDINGS", "Clear."), ("IMPRESSION", "Normal.")]),
        ("FINDINGS\nClear.\n\nIMPRESSION\n1. OK.", [("FINDINGS", "Clear."), ("IMPRESSION", "1. OK.")]),
        ("Findings and impression: Clear.", [("FINDINGS AND IMPRESSION", "Clear.")]),
        ("FINDINGS/IMPRESSION:\nClear.", [("FINDINGS/IMPRESSION", "Clear.")]),
        ("Clinical history: X.\nFindings: Clear.", [("CLINICAL HISTORY", "X."), ("FINDINGS", "Clear.")]),
        ("FINDINGS: Lungs: clear.\nHeart: normal.", [("FINDINGS", "Lungs: clear.\nHeart: normal.")]),
        ("IMPRESSION: OK.\nADDENDUM #2: Nodule.", [("IMPRESSION", "OK."), ("ADDENDUM #2", "Nodule.")]),
        ("Klinik: Husten.\nBefund: Frei.\nBeurteilung: Normal.\nNachtrag: Rundherd.",
         [("KLINIK", "Husten."), ("BEFUND", "Frei."), ("BEURTEILUNG", "Normal."), ("NACHTRAG", "Rundherd.")]),
        ("Indikation: X. Technik: pa. Vergleich: keiner. Befund: Frei.",
         [("INDIKATION", "X."), ("TECHNIK", "pa."), ("VERGLEICH", "keiner."), ("BEFUND", "Frei.")]),
        ("The lungs are clear. No effusion.", [("", "The lungs are clear. No effusion.")]),
        ("Normal chest", [("", "Normal chest")]),
        ("The lungs are clear and expanded.\n\nIMPRESSION: Normal.",
         [("", "The lungs are clear and expanded."), ("IMPRESSION", "Normal.")]),
        ("WET READ: Pneumothorax.\nFINDINGS: No pneumothorax.", [("FINDINGS", "No pneumothorax.")]),
        ("FINDINGS: Chest Comparison: A mass.", [("FINDINGS", "Chest Comparison: A mass.")]),
        ("FINDINGS: Clear IMPRESSION: Normal", [("FINDINGS", "Clear"), ("IMPRESSION", "Normal")]),
        ("WET READ: Pneumothorax.", [("WET READ", "Pneumothorax.")]),
        ("FINDINGS: Clear.\n____________\nJohn Smith\nConsultant Physician", [("FINDINGS", "Clear.")]),
        ("FINDINGS:\r\nClear.\x00\x07", [("FINDINGS", "Clear.")]),
        ("IMPRESSION:\nPectus Excavatum", [("IMPRESSION", "Pectus Excavatum")]),
        ("", []),
        ("Patient: John Smith", []),
        ("FINDINGS:\nIMPRESSION:", []),
    ],
)  # fmt: skip
def test_sections_are_found_by_their_headings(text: str, sections: list[tuple[str, str]]) -> None:
    assert _pairs(text) == sections


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("INDICATION: Cough.\n\nCOMPARISON: 1/2/2020.\n\nLarge effusion. Edema.", "Large effusion. Edema."),
        (
            "REASON FOR EXAM: Fever.\n\nThe lungs are clear.\n\nNo effusion.",
            "The lungs are clear.\n\nNo effusion.",
        ),
        (
            "HISTORY: Fall. TECHNIQUE: AP. Left rib fracture. Small effusion.",
            "Left rib fracture. Small effusion.",
        ),
        ("COMPARISON: None\nThe heart is large.\nNo edema.", "The heart is large.\nNo edema."),
        ("TECHNIQUE: PA and lateral. The lungs are clear.", "The lungs are clear."),
        ("EXAM: Chest radiograph. Right apical mass.", "Right apical mass."),
        ("Clinical data: pain\n\nChest X-ray, 2 views:\n\nNo mass.", "No mass."),
        ("INDICATION: pain\nPORTABLE AP CHEST: No mass.", "No mass."),
        ("HISTORY: Pain. X-ray chest: No mass.", "No mass."),
        ("Klinik: Sturz.\n\nRö-Thorax p.a.:\n\nKein Erguss.", "Kein Erguss."),
        ("HISTORY: Cough. There is a small effusion. No mass.", "There is a small effusion. No mass."),
        ("INDICATION: Cough\nThe lungs are clear.\nSmall mass.", "The lungs are clear.\nSmall mass."),
        ("HISTORY: Cough.\n\nLUNGS: Clear.\nHEART: Large.", "LUNGS: Clear.\nHEART: Large."),
        ("FINAL REPORT\nCHEST, TWO VIEWS\n\nCOMPARISON: None.\n\nSmall nodule.\n\nJohn Roe", "Small nodule."),
        ("WET READ: Mass.\nCOMPARISON: None.\n\nNo mass.", "No mass."),
        ("COMPARISON: Film of May. It showed a mass. The mass is gone.", "The mass is gone."),
        ("Klinik: Husten.\n\nVergleich: keiner.\n\nErguss links.", "Erguss links."),
        ("Indikation: Sturz. Technik: p.a. im Stehen. Rippenfraktur links.", "Rippenfraktur links."),
        ("INDICATION: Cough.\n\nCOMPARISON: None.\n\nSmall mass.\n\nIMPRESSION: Mass.", "Small mass."),
    ],
)
def test_a_body_without_a_heading_is_found(text: str, body: str) -> None:
    sections = clinical_sections(text)
    assert [section.text for section in sections if section.heading == "REPORT"] == [body]
    assert not any(word in body for word in ("Cough", "Fever", "Pain", "Husten", "Sturz"))
    stored = "\n\n".join(f"{section.heading}: {section.text}" for section in sections)
    assert place_in_report(body.split("\n")[0], stored) == stored.index(body)


@pytest.mark.parametrize(
    "text",
    [
        "INDICATION: Cough.\n\nFever, pneumonia last year.\n\nFINDINGS: Clear.",
        "COMPARISON: Film of May. It showed a mass. FINDINGS: Clear.",
        "INDICATION: Cough. Known effusion.",
        "HISTORY: Fall. There is concern for pneumothorax. No fever.",
        "INDICATION: Dyspnea. Heart failure with effusion. Pneumonia?",
        "TECHNIQUE: PA. Views of the chest were obtained.\nCOMPARISON: No. No prior chest film.",
        "INDICATION: Cough.\n\nKnown effusion.\n\nIMPRESSION: Clear.",
        "TECHNIQUE: AP.\n\nRECOMMENDATION: CT.\n\nCall for an appointment.",
    ],
)
def test_history_and_technique_are_no_body(text: str) -> None:
    assert "REPORT" not in [section.heading for section in clinical_sections(text)]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("EXAM: Chest\nDATE: 1/2/2020\n\nThe lungs are clear.", "The lungs are clear."),
        ("Small mass.\n\nTECHNIQUE: AP", "Small mass."),
        (
            "Patient: X\nINDICATION: Cough\nMRN: 12345\nJohn Roe\nEffusion on the left.",
            "Effusion on the left.",
        ),
    ],
)
def test_text_without_a_heading_is_kept_where_no_section_describes_the_image(text: str, kept: str) -> None:
    assert ("", kept) in _pairs(text)


@pytest.mark.parametrize(
    "head",
    [
        "Patient: {}, John",
        "PATIENT NAME: John {}\nDOB: 1/1/1950\nMRN: {}1",
        "Name: {}\nAccession #: {}77",
        "{} HOSPITAL\n{}, JOHN Q\n1/2/1950",
        "Mr. John {}\nLungs and heart were seen by him in the year 2020.",
        "Referring Physician: Dr. {}",
        "Patient: {}, Hans, geb. 1.2.1950\nZuweiser: Dr. {}",
        "Pat.-Nr.: {}",
        "Ordering Provider:\n{} John\nLocation: {}",
    ],
)
def test_heads_of_reports_are_dropped(head: str) -> None:
    text = head.replace("{}", "Zqxmarker") + "\n\nFINDINGS: Small effusion. {} is well.".replace(
        "{}", "Zqxmarker"
    )
    pairs = _pairs(text)
    assert [heading for heading, _ in pairs] == ["FINDINGS"]
    if ":" in head and "HOSPITAL" not in head:
        assert "zqxmarker" not in repr(pairs).lower()


@pytest.mark.parametrize(
    "foot",
    [
        "Electronically signed by {} on 3/4/2020 12:00",
        "Dictated by: {}, MD",
        "DICTATED AND SIGNED BY {}",
        "Attending: Dr. {}\nResident: {}",
        "Signed: {}",
        "/s/ {}",
        "Radiologist: {}",
        "John {} MD",
        "Dr. {}",
        "cc: {}",
        "Tel: {}1",
        "Thank you for referring {} to us.",
        "Mit freundlichen Grüßen\nPriv.-Doz. Dr. med. {}",
        "Befundet von: {}",
        "Freigegeben durch {}",
        "gez. Dr. {}",
        "Oberärztin: {}",
        "This report was electronically signed by {}",
        "I have personally reviewed the images and agree: {}",
    ],
)
@pytest.mark.parametrize("glue", ["\n", "\n\n", " "])
def test_signatures_and_feet_are_dropped(foot: str, glue: str) -> None:
    (section,) = clinical_sections(f"IMPRESSION: Small left effusion.{glue}{foot.replace('{}', 'Zqxmarker')}")
    assert section.text.startswith("Small left effusion.")
    assert "zqxmarker" not in section.text.lower()


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Seen on 3/4/2020 and 12.03.20.", f"Seen on {MARK} and {MARK}."),
        ("Since 2024-03-04T12:00:00Z.", f"Since {MARK}."),
        ("Film of March 3, 2020, 4 May 2019 and 12. Mai 2018.", f"Film of {MARK}, {MARK} and {MARK}."),
        ("At 14:35 and 3:45 p.m.", f"At {MARK} and {MARK}"),
        ("MRN 123 and DOB: 1950.", f"{MARK} and {MARK}"),
        ("Call 030 1234567 or +49 (30) 1234-567.", f"Call {MARK} or {MARK}."),
        ("Write to a.b@c.example.", f"Write to {MARK}."),
        ("Case 1234567, UID 1.2.840.113619.2.55.3.", f"Case {MARK}, UID {MARK}."),
        ("Dr. Smith, Prof. Dr. med. von Berg and Mrs O'Neil-Roe.", f"{MARK}, {MARK} and {MARK}."),
        ("Herr Meier und Frau Dr. Zwo.", f"{MARK} und {MARK}."),
        ("Jane Q. Roe, MD and A Smith FRCR.", f"{MARK} and {MARK}."),
        ("Discussed with John Smith at noon.", f"Discussed with {MARK}."),
        ("John Smith was informed.", f"{MARK} was informed."),
        ("Telefonisch an Station 5 mitgeteilt.", f"{MARK}."),
        (
            "A 93-year-old and a 101 yo man, 64-year-old son.",
            "A 90-year-old and a 90 yo man, 64-year-old son.",
        ),
    ],
)
def test_names_numbers_and_days_are_taken_out(text: str, cleaned: str) -> None:
    assert without_identifiers(text) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "Segment 5 may represent scar.",
        "A 2.5 x 3.1 cm mass.",
        "Ribs 4-6 and T10-12 are normal.",
        "Follow-up in 3 months; may 10 mm nodule?",
        "The tube is 4.5 cm above the carina.",
        "A 14 Fr catheter and MR angiography.",
        "Ratio of 16.2/24.7.",
        "The effusion was seen by ultrasound.",
        "Pneumothorax wurde telefonisch mitgeteilt.",
        "Right PA is enlarged, no MS.",
        "Prior films were reviewed.",
        "Examination was performed with nipple markers.",
        "Patient Rotated. Patient is supine. Patient Position: AP.",
        "Consultant Radiologist was asked. Seen with the consultant. Effusion.",
        "NP tube, RN, Sister Mary Joseph nodule.",
        "Effusion (Left/Right). (Frontal/Lateral)",
        "Outside Hospital film. Fracture Clinic. His mother. Effusion.",
        "Patient: rotated. Patient: Female, Supine. Patient: Verdreht.",
        "Pat. in Rückenlage. Pat. Husten und Fieber. Pat.: Erguss links. Pat. Lunge frei.",
        "attending physician informed. Attending Radiologist agrees.",
        "Klinik: Husten. Klinik Belastungsdyspnoe. Klinik Innere Medizin. Klinik Verschlechterung.",
        "Effusion (PA / lateral). (Erguss / Infiltrat) (Oberlappen / Mittellappen) (Chest / Abdomen)",
        "(Stauung / Dekompensation), (Port / Catheter), (Thorax / Herz)",
        "Tochter Brustkrebs. Vater Bronchialkarzinom. Mutter: Tuberkulose.",
        "Normal. C. Spine.",
        "Katheter. V. Subclavia.",
        "Erguss. R. Unterlappen.",
    ],
)
def test_words_and_measures_of_reports_stay(text: str) -> None:
    assert without_identifiers(text) == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Told NP Zqx and PA-C Zqy.", f"Told NP {MARK} and PA-C {MARK}."),
        ("Seen with Professor Zqx.", f"Seen with Professor {MARK}."),
        ("Aus dem St.-Zqx-Krankenhaus verlegt.", f"Aus dem {MARK}-Krankenhaus verlegt."),
        ("At consultant Zqx's request.", f"At consultant {MARK} request."),
        (
            "Sister Anna Zqx, Registrar Zqy and Fellow Dr. Zqz.",
            f"Sister {MARK}, Registrar {MARK} and Fellow {MARK}.",
        ),
        ("Nurse Practitioner Zqx Zqy paged.", f"{MARK} {MARK} paged."),
        ("Patient Zqx, Anna was supine.", f"Patient {MARK} was supine."),
        ("Patient Zqx rotated. Pt. Anna Zqx.", f"Patient {MARK} rotated. Pt. {MARK}."),
        ("Her husband, Zqx, and son Zqy.", f"Her husband, {MARK}, and son {MARK}."),
        ("Die Tochter, Zqx, war da.", f"Die Tochter, {MARK}, war da."),
        ("From St. Zqx's Hospital.", f"From {MARK} Hospital."),
        ("Film of the Zqx Zqy Medical Center.", f"Film of the {MARK} Medical Center."),
        ("Effusion. (Zqx/Zqy)", f"Effusion. ({MARK})"),
        ("Effusion.\n(Zqx / Zqy-Roe / Zqz)", f"Effusion.\n({MARK})"),
        ("Effusion. D/W Zqx.", f"Effusion. D/W {MARK}."),
        ("Patient: Zqx, Zeta.", f"Patient: {MARK}."),
        ("Patient's name: Q. Zqx. Patientenname: Zqy.", f"Patient's name: {MARK}. Patientenname: {MARK}."),
        ("Pat. Zqx im Liegen. Pat.: Şqx, Marie.", f"Pat. {MARK} im Liegen. Pat.: {MARK}."),
        ("Nurse practitioner Zqx notified.", f"Nurse practitioner {MARK} notified."),
        ("informed physician assistant Zqx", f"informed physician assistant {MARK}"),
        ("Reviewed with attending Zqx.", f"Reviewed with attending {MARK}."),
        ("Pulmonologist Zeta von Zqx agrees.", f"Pulmonologist {MARK} agrees."),
        ("The attending, Q. Zqx, agrees.", f"The attending, {MARK}, agrees."),
        ("MTRA Zqx, Fachärztin Zqy.", f"MTRA {MARK}, Fachärztin {MARK}."),
        ("Patient Li, Wei. Her husband Frank.", f"Patient {MARK}. Her husband {MARK}."),
        ("Tochter Zqx anwesend.", f"Tochter {MARK} anwesend."),
        ("Stiefvater Zeta Zqx und Enkelin Zqy.", f"Stiefvater {MARK} und Enkelin {MARK}."),
        ("Daughter Zqx present.", f"Daughter {MARK} present."),
        ("Klinik Zqx Voraufnahme.", f"Klinik {MARK} Voraufnahme."),
        ("Klinikum Bad Zqx, Pflegeheim Zqy.", f"Klinikum {MARK}, Pflegeheim {MARK}."),
        ("Effusion (Zqx / Zqyroe).", f"Effusion ({MARK})."),
        ("Effusion ( Q. Zqx/ Zqyroe ), stable.", f"Effusion ( {MARK} ), stable."),
        ("Effusion. Q. Zqx.", f"Effusion. {MARK}."),
        ("Kein Erguss.\nQ.R. von Zqx-Roe", f"Kein Erguss.\n{MARK}"),
    ],
)
def test_names_behind_roles_are_taken_out(text: str, cleaned: str) -> None:
    assert without_identifiers(text) == cleaned


def test_known_names_are_taken_out_in_any_form_and_words_of_reports_stay() -> None:
    known = ("SMALL^ZQX^HEART", "Müller-Zqy", "A-77X", "1950", "effusion")
    text = "zqx, ZQX's, Müller-Zqy; Small heart with effusion of 1950 ml, A-77X."
    assert (
        without_identifiers(text, known)
        == f"{MARK}, {MARK}, {MARK}; Small heart with effusion of 1950 ml, {MARK}."
    )


@given(st.text(alphabet=st.sampled_from("AaBb:.\n \tFINDINGSimpressoDr19/_-ß"), max_size=200))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_text_has_sections_of_its_own_letters(text: str) -> None:
    for section in clinical_sections(text):
        assert any(map(str.isalnum, section.text))
        find_findings(section.text)


@pytest.mark.parametrize(
    "part",
    [
        "A ",
        "_",
        *(pytest.param(part, marks=pytest.mark.slow) for part in ("Dr. ", "1 ", "a:\n", "Aa Bb\n", "was ")),
    ],
)
def test_a_long_text_takes_little_time(part: str) -> None:
    clinical_sections(f"FINDINGS: {part * 60_000}")


@pytest.mark.parametrize("part", ["p.a. ", "thorax ", "Heart: ", "There is. "])
def test_a_long_text_without_a_heading_of_findings_takes_little_time(part: str) -> None:
    clinical_sections(f"COMPARISON: None. {part * 5_000}")


@pytest.mark.parametrize(
    ("text", "report", "place"),
    [
        (
            "Small effusion.",
            "INDICATION: Evaluate for small effusion. Small effusion.\nFINDINGS: *Small effusion. Clear.",
            "*",
        ),
        ("effusion.", "FINDINGS: No effusion. Edema.\n\nIMPRESSION: *effusion.", "*"),
        ("effusion.", "FINDINGS: No effusion.", None),
        ("Effusion", "No Effusion. Edema.\n*Effusion", "*"),
        ("Effusion", "IMPRESSION:\n1. No edema.\n2. *Effusion.", "*"),
        (
            "Effusion. No edema.",
            "HISTORY: Effusion. FINDINGS: No pneumonia. *Effusion. No edema. Clear.",
            "*",
        ),
        ("BEFUND: Erguss.", "KLINIK: Erguss.\n*BEFUND: Erguss.", "*"),
        ("Erguss.", "*Erguss.", "*"),
        ("Erguss.", "BEFUND: Thoraxröntgen in 2 Ebenen: *Erguss.", "*"),
        ("Erguss.", "", None),
    ],
)
def test_a_text_stands_where_it_is_whole_sentences_of_what_describes_the_image(
    text: str, report: str, place: str | None
) -> None:
    plain = report.replace("*", "")
    assert place_in_report(text, plain) == (None if place is None else report.index("*"))


def test_without_a_section_that_describes_the_image_the_first_whole_sentence_counts() -> None:
    report = "INDICATION: Possible small effusion. Small effusion. COMPARISON: Small effusion."
    assert place_in_report("Small effusion.", report) == report.index("Small")
