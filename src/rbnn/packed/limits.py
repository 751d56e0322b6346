"""Size limits of a packed network."""

LARGEST_SIDE = 1 << 14
LARGEST_CHANNELS = 1 << 20
LARGEST_BUFFER = 1 << 27
LARGEST_NETWORK = 1 << 28
"""Values of all buffers.  They are declared but not stored, so otherwise a small file could take all memory."""
LARGEST_STEP = 255
LARGEST_PADDING = 1024
LARGEST_INT8_TAPS = 1 << 16
"""255 · 128 · 2¹⁶ < 2³¹: the sum of an int8 convolution is exact."""
LARGEST_FLOAT_TAPS = 1 << 24
"""A sum of this many signs is exact in float32."""

MOST_SIDES = 8
"""Dimensions of an array that is permuted."""
LARGEST_SCALE = 1e4
"""The largest factor of a resize."""
SMALLEST_EPS = 1e-12
"""The smallest number that is added to a variance: the variance of an image of one colour is only rounding."""
