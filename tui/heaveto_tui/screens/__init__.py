"""The places of the console and the questions on top of them."""
