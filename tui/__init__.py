"""All that a person meets in the terminal: commands, screens, widgets."""
