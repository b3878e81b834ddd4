"""What CI systems read: annotations and summaries of GitHub, SARIF, GitLab's code quality."""
