"""How fast a kernel is: verified first, timed beside a peer, with the noise of the same run."""
