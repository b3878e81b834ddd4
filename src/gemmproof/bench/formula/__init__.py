"""Results beside their formula: blocks of c, the operands cut to them, and the judgement."""
