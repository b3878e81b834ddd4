"""Preparing a kernel: from TTIR as it is written to a flat program, nothing done twice."""
