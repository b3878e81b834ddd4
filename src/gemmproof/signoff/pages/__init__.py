"""The pages of a sign-off: HTML and Markdown."""
