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
"""So many signs add up to a float that is exact."""

MOST_SIDES = 8
"""Of a picture that is taken apart to be put together in another order."""
LARGEST_SCALE = 1e4
"""Of a picture that is resized."""
SMALLEST_EPS = 1e-12
"""Added to a variance: that of a picture of one colour is rounding alone."""
