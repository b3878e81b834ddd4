"""What torch has for each kind of kernel, by name: products, epilogues, packed weights."""
