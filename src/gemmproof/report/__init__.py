"""The report of a check, and its forms: text, JSON, JUnit, pictures."""
