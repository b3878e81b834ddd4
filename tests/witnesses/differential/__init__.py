"""Programs drawn at random, run on the simulator and on Triton's own interpreter."""
