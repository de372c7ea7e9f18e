"""What a worker of a test's server loads beside vLLM: the seams of the CPU build, and weights from a file.

TRL sends weights to a server by NCCL, which needs GPUs on both sides. In tests a file stands in its place.
"""

from safetensors.torch import load_file

from tests.vllm import cpu_seams

cpu_seams.install()


class FileWeights:
    """A vLLM worker extension (``--worker-extension-cls``)."""

    def load_weights_file(self, path: str) -> None:
        """Load all tensors of a safetensors file into the running model."""
        self.model_runner.model.load_weights(load_file(path).items())
