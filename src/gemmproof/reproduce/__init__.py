"""From a failing case to a stand-alone test: found, reduced, tried and written."""
