"""heaveto: watch, steer and recover live agent flows."""
