"""What a compiled program says: its PTX or AMD assembly, its IR and the tables of its binary."""
