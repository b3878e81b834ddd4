"""A wrapper's formulas with numbers in them: every program, trip and lane of one call, by numpy."""
