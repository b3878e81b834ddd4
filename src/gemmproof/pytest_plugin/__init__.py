"""Parts of the pytest plugin: options, reports, Hypothesis items, annotations."""
