"""One function a family: the fields of a configuration to a Model."""
