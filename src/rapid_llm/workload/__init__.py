"""What is asked of the cluster: a training job or an inference batch."""

from rapid_llm.workload.jobs import Inference, Recompute, Training, Workload

__all__ = ["Inference", "Recompute", "Training", "Workload"]
