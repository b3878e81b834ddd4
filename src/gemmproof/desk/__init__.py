"""What makes commands pleasant at the desk: wrappers found, progress, files watched."""
