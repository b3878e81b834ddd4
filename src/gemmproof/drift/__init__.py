"""Drift: how far an accumulator is off as K grows."""
