"""Parts of the pytest plugin: its options, its reports, its Hypothesis items."""
