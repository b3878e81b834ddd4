"""Cases: sizes, layouts, data and launch options, how they are drawn and how they shrink."""
