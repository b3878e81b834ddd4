"""From a failing case to a test that stands alone: found, reduced, tried and written."""
