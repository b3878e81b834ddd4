"""The report of a check, and its output formats: text, JSON, JUnit, pictures."""
