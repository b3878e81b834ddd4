"""What each property and each fault means, for people: texts alone, that cost nothing to import."""
