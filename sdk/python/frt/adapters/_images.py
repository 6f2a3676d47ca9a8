# SPDX-License-Identifier: Apache-2.0
"""Images of other libraries as policies read them: u8, (height, width, channels), packed."""
from __future__ import annotations

from typing import Any

import numpy as np

# Resizing filters overshoot by less.
_SLACK = 1 / 255


def image_of(name: str, value: Any, channels: int | None = None) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """u8 0 to 255 or floats 0 to 1, channels last or first: what lerobot and openpi give. `channels`: as the policy wants
    them, or None. u8 with channels last is not copied."""
    image = np.asarray(value)
    counts = (channels,) if channels else (1, 3, 4)
    if image.ndim == 3 and image.shape[2] not in counts and image.shape[0] in counts:
        image = image.transpose(1, 2, 0)
    if image.ndim != 3 or image.shape[2] not in counts:
        raise ValueError(f"image '{name}' has the shape {np.shape(value)}; expected (height, width, channels) or "
                         f"(channels, height, width) with {' or '.join(map(str, counts))} channels")
    if image.dtype == np.uint8:
        return np.ascontiguousarray(image)
    if not np.issubdtype(image.dtype, np.floating):
        raise TypeError(f"image '{name}' has elements of type {image.dtype}; expected uint8, or floats from 0 to 1")
    if image.size and not (image.min() >= -_SLACK and image.max() <= 1 + _SLACK):  # of NaN neither holds
        raise ValueError(f"image '{name}' has values from {image.min()} to {image.max()}; floats go from 0 to 1")
    return (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8, order="C")
