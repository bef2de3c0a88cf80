"""Text of reports: spelling, vocabulary, cues, languages, headings, sections, sentences, identifiers."""
