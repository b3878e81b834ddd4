"""A kernel's address map in closed form, and the condition that an access lacks."""
