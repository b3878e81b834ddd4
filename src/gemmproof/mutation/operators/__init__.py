"""The changes that a mutant may be, by family: each rule gives the edits of one node."""
