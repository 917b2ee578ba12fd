"""Properties are about values, never about time: a slow machine fails none of them."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "heaveto", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("heaveto")
