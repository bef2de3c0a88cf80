"""Text of radiology reports: spelling, vocabulary, languages, headings, sections, sentences, identifiers."""
