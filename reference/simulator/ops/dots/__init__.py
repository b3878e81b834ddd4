"""tt.dot and its kin: the arithmetic is left to a dot model."""
