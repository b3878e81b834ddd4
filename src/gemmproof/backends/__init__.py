"""Backends that turn a case into an observation: the tile simulator, and a CUDA device."""
