"""How property tests draw: the same examples each time, so that a change is judged on what it changed.

``HYPOTHESIS_PROFILE=new make test`` draws new ones.
"""

from os import environ

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(environ.get("HYPOTHESIS_PROFILE", "same"))
