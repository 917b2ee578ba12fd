"""The panes that the screens are put together from."""
