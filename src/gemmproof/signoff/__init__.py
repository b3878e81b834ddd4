"""The sign-off of a project's kernels: its record, its seal, a baseline, and its pages."""
