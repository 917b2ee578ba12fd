"""The console: Textual screens over the read side and the controls."""
