"""From a picture file to what a network takes: one resize, crop and normalise for validation, eval, predict.

Pictures are uint8 arrays (height, width, channels) until `normalise`.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from rbnn.errors import ConfigError, DataError

MAX_PIXELS = 80_000_000
"""A file of a few kilobytes can claim any size: larger pictures are refused before they are decoded."""

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Not all that Pillow knows: it would hand PostScript, whatever the file is called, to an interpreter."""

LONGEST_REASON = 200
"""Characters: Pillow quotes what it finds in a file."""

LARGEST_BATCH = 1 << 26
"""Values of all pictures that are normalised at the same time: a small file can name a network of large pictures."""

MARGIN_FROM = 64
"""Networks for smaller pictures are evaluated on whole ones; from here on the middle 224/256 is cut out."""

Picture = NDArray[np.uint8]


Source: TypeAlias = Path | str | bytes | Image.Image | Picture
"""A picture file, its bytes, a picture of Pillow's, or an array of bytes: (H, W) or (H, W, C)."""


def decode(source: Source) -> Picture:
    """Any picture as RGB: upright by its EXIF tag, transparent parts on white."""
    where = _called(source)
    try:
        if isinstance(source, np.ndarray):
            source = Image.fromarray(source.reshape(source.shape[:2]) if source.shape[2:] == (1,) else source)
        if isinstance(source, Image.Image):
            return np.asarray(_rgb(ImageOps.exif_transpose(source), source.format))
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise DataError(
                    f"{where} should have at most {MAX_PIXELS:,} pixels, not {opened.width} x {opened.height}"
                )
            return np.asarray(_rgb(ImageOps.exif_transpose(opened), opened.format))
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"there is no picture {where}") from error
    except Exception as error:  # on damaged files Pillow's decoders raise nearly anything
        reason = str(error)[:LONGEST_REASON] or f"its decoder gave up ({type(error).__name__})"
        raise DataError(f"{where} cannot be read as a picture: {reason}") from error


def _called(source: Source) -> str:
    return str(source) if isinstance(source, Path | str) else "the picture"


def _rgb(picture: Image.Image, file_format: str | None) -> Image.Image:
    if picture.mode == "F" or (picture.mode == "I" and file_format == "TIFF"):
        picture = Image.fromarray(_without_a_white(np.asarray(picture)))
    elif picture.mode.startswith("I"):  # 16-bit grey: Pillow would clip it to 255
        picture = Image.fromarray((np.asarray(picture) >> 8).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        seen = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
    return picture.convert("RGB")


def _without_a_white(values: NDArray[np.int32] | NDArray[np.float32]) -> Picture:
    """Grey of 32-bit numbers.  Their file does not say which number is white: read are those whose values tell, 0 to
    255, or 0 to 1 where they are fractions."""
    least, most = float(values.min()), float(values.max())
    if not 0 <= least <= most <= 255:  # nor NaN
        raise ValueError(f"its numbers go from {least:g} to {most:g}, expected 0 to 255; save it with 8 or 16 bits")
    fractions = values.dtype == np.float32 and most <= 1
    scaled: NDArray[np.float32] = np.rint(values * np.float32(255 if fractions else 1))
    return scaled.astype(np.uint8)


def resize_shorter(image: Picture, size: int) -> Picture:
    """Scale so that the shorter side is `size`, bilinear with antialiasing."""
    height, width = image.shape[:2]
    shorter = min(height, width)
    if shorter == size:
        return image
    return resize(image, size * height // shorter, size * width // shorter)


def resize(image: Picture, height: int, width: int) -> Picture:
    """Scale to exactly this size, bilinear with antialiasing."""
    grey = image.shape[2] == 1
    scaled = Image.fromarray(image[..., 0] if grey else image).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(scaled)[..., None] if grey else np.asarray(scaled)


def centre_crop(image: Picture, size: int) -> Picture:
    """The middle square."""
    height, width = image.shape[:2]
    if min(height, width) < size:
        raise ConfigError(f"a crop of {size} pixels needs a picture of that size, not {height} x {width}")
    top, left = round((height - size) / 2), round((width - size) / 2)
    return image[top : top + size, left : left + size]


def normalise(images: Picture, mean: Sequence[float], std: Sequence[float]) -> NDArray[np.float32]:
    """(N, H, W, C) bytes to (N, C, H, W) float32: (pixel / 255 - mean) / std, per channel."""
    offset, scale = normalisation(mean, std)
    # Transposed first: both operations then run over contiguous planes.
    values = images.transpose(0, 3, 1, 2).astype(np.float32, order="C")
    values -= offset[:, None, None]
    values *= scale[:, None, None]
    return values


def at_once(wanted: int, size: int, channels: int) -> int:
    """How many pictures may be in memory as floats at the same time: ``wanted``, fewer where they are large, one at
    least."""
    return max(1, min(wanted, LARGEST_BATCH // (size * size * channels)))


def normalisation(mean: Sequence[float], std: Sequence[float]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`(offset, scale)` with normalised = (pixel - offset) * scale.

    Training uses the same two numbers in the same order of operations: its inputs equal these bit for bit.
    """
    offset = np.asarray(mean, np.float64) * 255
    scale = 1 / (np.asarray(std, np.float64) * 255)
    return offset.astype(np.float32), scale.astype(np.float32)


def shorter_side(size: int, margin: bool = True) -> int:
    """What a picture is scaled to before its middle of this size is cut out."""
    return size if size < MARGIN_FROM or not margin else size * 256 // 224


def picture(source: Source, size: int, channels: int, margin: bool = True) -> Picture:
    """A picture as validation sees it: (size, size, channels).  Without ``margin`` nothing of its middle square is cut
    off, so that a map has an answer for all of it."""
    image = whole_picture(source, channels)
    shorter = shorter_side(size, margin)
    height, width = image.shape[:2]
    if shorter * (shorter * max(height, width) // min(height, width)) > MAX_PIXELS:
        raise DataError(
            f"{_called(source)} of {width} x {height} is too thin: with a shorter side of {shorter} it would have more "
            f"than {MAX_PIXELS:,} pixels; cut it first"
        )
    return centre_crop(resize_shorter(image, shorter), size)


def whole_picture(source: Source, channels: int) -> Picture:
    """A picture in its own size: (height, width, channels)."""
    image = decode(source)
    if channels == 1:
        return np.asarray(Image.fromarray(image).convert("L"))[..., None]
    if channels != 3:
        raise ConfigError(f"pictures have 1 or 3 channels, not {channels}")
    return image
