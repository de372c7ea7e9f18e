"""A key/value cache for long lockstep decoding: grows by blocks, and can drop rows."""

import torch
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

BLOCK = 256  # tokens by which a layer's buffer grows


class GrowingLayer(DynamicLayer):
    """A full-attention layer's cache with spare room.

    transformers' DynamicLayer copies all keys and values at every token (torch.cat); at 144 rows of 600 tokens that
    is most of a decode step on a CPU. Here a token is written in place, and ``keys`` and ``values`` are views of the
    part in use.
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append states of shape (rows, heads, tokens, head_dim) and return all that are held."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = [key_states[..., :0, :], value_states[..., :0, :]]
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        views = []
        for i, new in enumerate((key_states, value_states)):
            if end > self._buffers[i].shape[-2]:
                grown = new.new_empty(*new.shape[:-2], end + BLOCK, new.shape[-1])
                grown[..., :start, :] = self._buffers[i][..., :start, :]
                self._buffers[i] = grown
            self._buffers[i][..., start:end, :] = new
            views.append(self._buffers[i][..., :end, :])
        self.keys, self.values = views
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Keep the rows ``beam_idx``."""
        length = self.get_seq_length()
        self._buffers = [buffer.index_select(0, beam_idx.to(buffer.device)) for buffer in self._buffers]
        self.keys, self.values = (buffer[..., :length, :] for buffer in self._buffers)


def growing_cache(config: PreTrainedConfig) -> DynamicCache:
    """A cache for ``config``'s layers, with growing buffers for its full-attention layers.

    Rows are dropped with ``reorder_cache``: ``batch_select_indices`` fails on linear-attention layers.
    """
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
