"""How many examples Hypothesis tries: a test says how many it is worth, and the profile multiplies that.

======== ============================================================================
default  a third of the examples: what `make test` runs, on others each time
quick    a fifth of the examples: `make check`
ci       as many as default, the same ones each time: what fails there fails again, and what passed passes
thorough ten times the examples: after a change of the contract, the engine or a kernel
======== ============================================================================

``pytest --hypothesis-profile=thorough``, or ``HYPOTHESIS_PROFILE=thorough`` in the environment.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

__all__ = ["examples", "register_profiles"]

_USUAL_EXAMPLES = 100
_PROFILES: dict[str, dict[str, object]] = {
    "default": {"max_examples": _USUAL_EXAMPLES // 3},
    "quick": {"max_examples": _USUAL_EXAMPLES // 5},
    "ci": {"max_examples": _USUAL_EXAMPLES // 3, "derandomize": True},
    "thorough": {"max_examples": _USUAL_EXAMPLES * 10},
}
# These checks are off: how long drawing and running take depends on the machine, not on the package.
_OF_THE_MACHINE = (HealthCheck.too_slow, HealthCheck.data_too_large)


def register_profiles() -> None:
    """Register all profiles and load the one that the environment names; pytest's own option comes later, and wins."""
    usual = {"max_examples": _USUAL_EXAMPLES, "deadline": None, "suppress_health_check": _OF_THE_MACHINE}
    for name, special in _PROFILES.items():
        settings.register_profile(name, settings(settings.get_profile("default"), **{**usual, **special}))
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def examples(count: int, *suppressed: HealthCheck) -> settings:
    """Return the settings of a test that is worth so many examples; the profile makes them more or fewer.

    Parameters
    ----------
    count : int
        Examples in the profile `default`; a test without these settings has 100.
    suppressed : HealthCheck
        Checks that are off besides those of the profile.
    """
    scaled = count * settings.default.max_examples // _USUAL_EXAMPLES
    return settings(max_examples=max(scaled, 1), suppress_health_check=(*_OF_THE_MACHINE, *suppressed))
