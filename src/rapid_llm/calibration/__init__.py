"""Constants from one's own measurements: tables in, data files out."""

from rapid_llm.calibration.fabric import Calibration, calibrate
from rapid_llm.calibration.measurements import Measurement, read

__all__ = ["Calibration", "Measurement", "calibrate", "read"]
