"""Judging accesses, and the words for what is wrong with them."""
