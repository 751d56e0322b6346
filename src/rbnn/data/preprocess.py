"""From an image file to the input of a network: one resize, crop and normalise for validation, eval and predict.

Images are uint8 arrays (height, width, channels) until `normalise`.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from rbnn.errors import ConfigError, DataError

MAX_PIXELS = 80_000_000
"""A file of a few kilobytes can claim any size, so larger images are refused before they are decoded."""

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Only a part of Pillow's formats: it would pass PostScript to an interpreter, whatever the file is called."""

LONGEST_REASON = 200
"""In characters.  Pillow's messages quote the contents of a file."""

LARGEST_BATCH = 1 << 26
"""Values of all images that are normalised at the same time.  A small file can contain a network for large images."""

MARGIN_FROM = 64
"""Networks for smaller images are evaluated on whole images.  From this size on, the centre 224/256 is cropped."""

Picture = NDArray[np.uint8]


Source: TypeAlias = Path | str | bytes | Image.Image | Picture
"""An image file, its bytes, a Pillow image, or an array of bytes: (H, W) or (H, W, C)."""


def decode(source: Source) -> Picture:
    """Any image as RGB: upright according to its EXIF tag, with transparent parts on white."""
    where = _called(source)
    try:
        if isinstance(source, np.ndarray):
            source = Image.fromarray(source.reshape(source.shape[:2]) if source.shape[2:] == (1,) else source)
        if isinstance(source, Image.Image):
            return np.asarray(_rgb(ImageOps.exif_transpose(source), source.format))
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise DataError(f"{where} has {opened.width} x {opened.height} pixels, expected at most {MAX_PIXELS:,}")
            return np.asarray(_rgb(ImageOps.exif_transpose(opened), opened.format))
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"image {where} does not exist") from error
    except IsADirectoryError as error:
        raise DataError(f"{where} is a directory, not an image: pass its files, such as {where}/*.png") from error
    except Exception as error:  # Pillow's decoders can raise nearly anything for damaged files
        reason = str(error)[:LONGEST_REASON] or f"its decoder gave up ({type(error).__name__})"
        if isinstance(error, UnidentifiedImageError):
            reason = "it is empty" if _is_empty(source) else "its format is unknown"
        raise DataError(f"{where} could not be read as an image: {reason}") from error


def _called(source: Source) -> str:
    return str(source) if isinstance(source, Path | str) else "the image"


def _is_empty(source: Source) -> bool:
    if isinstance(source, Path | str):
        return Path(source).stat().st_size == 0
    return isinstance(source, bytes) and not source


def _rgb(picture: Image.Image, file_format: str | None) -> Image.Image:
    if picture.mode == "F" or (picture.mode == "I" and file_format not in ("PNG", "PPM")):
        picture = Image.fromarray(_without_a_white(np.asarray(picture)))
    elif picture.mode.startswith("I"):  # 16-bit grey: Pillow would clip it to 255
        picture = Image.fromarray((np.asarray(picture) >> 8).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        seen = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
    return picture.convert("RGB")


def _without_a_white(values: NDArray[np.int32] | NDArray[np.float32]) -> Picture:
    """A grey image of 32-bit numbers.  The file does not say which number is white, so the values must be 0 to 255, or
    0 to 1 if they are fractions."""
    least, most = float(values.min()), float(values.max())
    if not 0 <= least <= most <= 255:  # nor NaN
        raise ValueError(f"expected values from 0 to 255, got {least:g} to {most:g}; save it with 8 or 16 bits")
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
        raise ConfigError(f"a crop of {size} pixels needs an image of at least that size, got {height} x {width}")
    top, left = round((height - size) / 2), round((width - size) / 2)
    return image[top : top + size, left : left + size]


def normalise(images: Picture, mean: Sequence[float], std: Sequence[float]) -> NDArray[np.float32]:
    """(N, H, W, C) bytes to (N, C, H, W) float32: (pixel / 255 - mean) / std, per channel."""
    offset, scale = normalisation(mean, std)
    # Transposed first, so that both operations run over contiguous planes.
    values = images.transpose(0, 3, 1, 2).astype(np.float32, order="C")
    values -= offset[:, None, None]
    values *= scale[:, None, None]
    return values


def at_once(wanted: int, size: int, channels: int) -> int:
    """How many images may be in memory as floats at the same time: ``wanted``, fewer if they are large, but at least
    one."""
    return max(1, min(wanted, LARGEST_BATCH // (size * size * channels)))


def normalisation(mean: Sequence[float], std: Sequence[float]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`(offset, scale)` with normalised = (pixel - offset) * scale.

    Training uses the same two numbers in the same order of operations, so its inputs are equal bit for bit.
    """
    offset = np.asarray(mean, np.float64) * 255
    scale = 1 / (np.asarray(std, np.float64) * 255)
    return offset.astype(np.float32), scale.astype(np.float32)


def shorter_side(size: int, margin: bool = True) -> int:
    """The size of the shorter side before a centre crop of this size."""
    return size if size < MARGIN_FROM or not margin else size * 256 // 224


def picture(source: Source, size: int, channels: int, margin: bool = True) -> Picture:
    """An image as validation sees it: (size, size, channels).  Without ``margin`` nothing of its centre square is
    cropped, so that a map covers all of it."""
    image = whole_picture(source, channels)
    shorter = shorter_side(size, margin)
    height, width = image.shape[:2]
    if shorter * (shorter * max(height, width) // min(height, width)) > MAX_PIXELS:
        raise DataError(
            f"{_called(source)} of {width} x {height} is too narrow: with a shorter side of {shorter} it would have "
            f"more than {MAX_PIXELS:,} pixels; crop it first"
        )
    return centre_crop(resize_shorter(image, shorter), size)


def whole_picture(source: Source, channels: int) -> Picture:
    """An image in its own size: (height, width, channels)."""
    image = decode(source)
    if channels == 1:
        return np.asarray(Image.fromarray(image).convert("L"))[..., None]
    if channels != 3:
        raise ConfigError(f"images must have 1 or 3 channels, got {channels}")
    return image
