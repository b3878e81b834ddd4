"""A kernel run over symbols: one generic program, one generic lane, one trip of each loop."""
