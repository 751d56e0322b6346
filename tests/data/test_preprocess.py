"""From image files to network inputs."""

import io
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from rbnn.data import preprocess
from rbnn.errors import ConfigError, DataError


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def ramp(height: int = 12, width: int = 20) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_png_is_read_exactly_from_path_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(saved(Image.fromarray(ramp()), "PNG"))
    for source in (path, str(path), path.read_bytes()):
        np.testing.assert_array_equal(preprocess.decode(source), ramp())


@pytest.mark.parametrize("kind", ["BMP", "GIF", "MPO", "PPM", "TIFF", "WEBP"])
def test_other_kinds_of_file(kind: str) -> None:
    two = {"save_all": True, "append_images": [Image.new("RGB", (20, 12))]} if kind in ("GIF", "MPO") else {}
    decoded = preprocess.decode(saved(Image.new("RGB", (20, 12), (255, 0, 0)), kind, **two)).astype(int)
    assert decoded.shape == (12, 20, 3)
    assert abs(decoded - [255, 0, 0]).max() < 6


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_greyscale_becomes_three_equal_channels(kind: str) -> None:
    grey = Image.new("L", (9, 5), 77)
    np.testing.assert_array_equal(preprocess.decode(saved(grey, kind)), np.full((5, 9, 3), 77))


def test_sixteen_bit_grey_keeps_its_high_byte() -> None:
    values = np.array([[0, 256, 0x7FFF, 0xFFFF]], np.uint16)
    decoded = preprocess.decode(saved(Image.fromarray(values), "PNG"))
    np.testing.assert_array_equal(decoded[0, :, 0], [0, 1, 127, 255])


def test_32_bit_grey_from_0_to_255_is_read_as_bytes() -> None:
    values = np.array([[0, 1, 127, 255]], np.int32)
    for stored in (values, values.astype(np.float32)):
        decoded = preprocess.decode(saved(Image.fromarray(stored), "TIFF"))
        np.testing.assert_array_equal(decoded[0, :, 0], values[0])


def test_fractions_are_read_as_shares_of_white() -> None:
    values = np.array([[0, 0.1, 0.5, 1]], np.float32)
    decoded = preprocess.decode(saved(Image.fromarray(values), "TIFF"))
    np.testing.assert_array_equal(decoded[0, :, 0], [0, 26, 128, 255])


@pytest.mark.parametrize(
    "values", [np.array([[0, 256]], np.int32), np.array([[-1, 3]], np.int32), np.array([[0, 65535]], np.float32),
               np.array([[0, np.nan]], np.float32), np.array([[-0.5, 1]], np.float32)], ids=str
)  # fmt: skip
def test_32_bit_numbers_whose_white_nobody_knows_are_refused(values: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"expected values from 0 to 255, got .*; save it with 8 or 16 bits"):
        preprocess.decode(saved(Image.fromarray(values), "TIFF"))


def test_a_pgm_file_says_which_number_is_white() -> None:
    decoded = preprocess.decode(b"P5\n3 1\n1000\n" + np.array([0, 500, 1000], ">u2").tobytes())
    np.testing.assert_array_equal(decoded[0, :, 0], [0, 128, 255])


def test_cmyk_jpeg() -> None:
    red = Image.new("RGB", (16, 16), (250, 10, 10)).convert("CMYK")
    decoded = preprocess.decode(saved(red, "JPEG", quality=95)).astype(int)
    assert abs(decoded - [250, 10, 10]).max() < 12


def test_transparency_lies_on_white() -> None:
    see_through = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    see_through.putpixel((1, 0), (0, 0, 255, 255))
    expected = [[[255, 255, 255], [0, 0, 255]]]
    np.testing.assert_array_equal(preprocess.decode(saved(see_through, "PNG")), expected)
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putpixel((1, 0), 1)
    np.testing.assert_array_equal(preprocess.decode(saved(palette, "PNG", transparency=0)), expected)


def test_the_camera_held_sideways() -> None:
    upright = ramp()
    exif = Image.Exif()
    exif[0x0112] = 6  # to be rotated by 90° clockwise
    lying = Image.fromarray(np.rot90(upright).copy())
    np.testing.assert_array_equal(preprocess.decode(saved(lying, "PNG", exif=exif)), upright)


def test_a_text_file_named_jpg(tmp_path: Path) -> None:
    path = tmp_path / "cat.jpg"
    path.write_text("no picture")
    with pytest.raises(DataError, match=r"cat\.jpg could not be read as an image"):
        preprocess.decode(path)
    with pytest.raises(DataError, match=r"image .* does not exist"):
        preprocess.decode(tmp_path / "dog.jpg")


def test_an_empty_file_and_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "cat.jpg"
    path.touch()
    for empty in (path, str(path), b""):
        with pytest.raises(DataError, match=r"could not be read as an image: it is empty$"):
            preprocess.decode(empty)
    with pytest.raises(DataError, match=rf"is a directory, not an image: pass its files, such as {tmp_path}/\*\.png$"):
        preprocess.decode(str(tmp_path))


@pytest.mark.parametrize(
    ("error", "reason"), [(EOFError(), r"its decoder gave up \(EOFError\)"), (OSError("x" * 999), "x{200}")]
)
def test_the_reason_is_neither_empty_nor_long(
    error: Exception, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(*_: object) -> None:
        raise error

    path = tmp_path / "cat.png"
    Image.fromarray(ramp()).save(path)
    monkeypatch.setattr(ImageOps, "exif_transpose", raising)
    with pytest.raises(DataError, match=rf"cat\.png could not be read as an image: {reason}$"):
        preprocess.decode(path)


def test_postscript_named_jpg_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "cat.jpg"
    Image.fromarray(ramp()).save(path, "EPS")
    with pytest.raises(DataError, match="could not be read as an image"):
        preprocess.decode(path)


@settings(deadline=None)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_damage_gives_a_picture_or_a_data_error(place: int, noise: bytes) -> None:
    for kind in ("PNG", "JPEG"):
        raw = bytearray(saved(Image.fromarray(ramp()), kind))
        raw[place : place + len(noise)] = noise
        for damaged in (bytes(raw), bytes(raw[: place + 1])):
            with suppress(DataError):
                assert preprocess.decode(damaged).shape[2] == 3


@pytest.mark.parametrize("side", [9_000, 12_000, 40_000])
def test_a_decompression_bomb_is_refused_undecoded(side: int) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    bomb += chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    with pytest.raises(DataError, match="pixels"):
        preprocess.decode(bomb)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 40), st.sampled_from([1, 3]))
def test_resize_shorter_keeps_the_shape(height: int, width: int, size: int, channels: int) -> None:
    resized = preprocess.resize_shorter(np.full((height, width, channels), 9, np.uint8), size)
    assert min(resized.shape[:2]) == size
    assert max(resized.shape[:2]) == size * max(height, width) // min(height, width)
    assert resized.shape[2] == channels
    assert (resized == 9).all()


def test_centre_crop_is_in_the_middle() -> None:
    image = np.arange(7 * 9, dtype=np.uint8).reshape(7, 9, 1)
    np.testing.assert_array_equal(preprocess.centre_crop(image, 3), image[2:5, 3:6])
    np.testing.assert_array_equal(preprocess.centre_crop(image, 7), image[:, 1:8])
    with pytest.raises(ConfigError, match="needs an image of at least that size, got 7 x 9"):
        preprocess.centre_crop(image, 8)


def test_normalise_is_the_formula() -> None:
    images, mean, std = ramp()[None], (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    values = preprocess.normalise(images, mean, std)
    assert (values.dtype, values.shape, values.flags.c_contiguous) == (np.float32, (1, 3, 12, 20), True)
    expected = (images / 255 - mean) / std
    np.testing.assert_allclose(values, expected.transpose(0, 3, 1, 2), atol=1e-6)


def test_a_picture_as_validation_sees_it() -> None:
    image = np.random.default_rng(1).integers(0, 256, (300, 512, 3), dtype=np.uint8)
    seen = preprocess.picture(saved(Image.fromarray(image), "PNG"), 224, 3)
    whole = Image.fromarray(image).resize((256 * 512 // 300, 256), Image.Resampling.BILINEAR)
    left = round((whole.width - 224) / 2)
    np.testing.assert_array_equal(seen, np.asarray(whole)[16:240, left : left + 224])


@pytest.mark.parametrize(("height", "width"), [(1, 78_126), (78_126, 1)])
def test_a_thin_picture_is_not_scaled_to_any_size(height: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """32² · 78,125 = 80,000,000 pixels are allowed; one more column is not."""
    monkeypatch.setattr(preprocess, "resize_shorter", lambda image, size: np.zeros((size, size, 3), np.uint8))
    fits = np.zeros((max(height - 1, 1), max(width - 1, 1)), np.uint8)
    assert preprocess.picture(saved(Image.fromarray(fits), "PNG"), 32, 3).shape == (32, 32, 3)
    monkeypatch.setattr(preprocess, "resize_shorter", pytest.fail)
    with pytest.raises(DataError, match=f"^the image of {width} x {height} is too narrow.* crop it"):
        preprocess.picture(saved(Image.new("L", (width, height)), "PNG"), 32, 3)


@pytest.mark.parametrize(("size", "channels"), [(8, 1), (28, 1), (32, 3)])
def test_a_picture_of_the_native_size_comes_through_unchanged(size: int, channels: int) -> None:
    image = ramp(size, size)[..., :channels]
    stored = Image.fromarray(image if channels == 3 else image[..., 0])
    np.testing.assert_array_equal(preprocess.picture(saved(stored, "PNG"), size, channels), image)


def test_a_colour_picture_for_a_grey_network() -> None:
    assert preprocess.picture(saved(Image.fromarray(ramp(40, 60)), "PNG"), 8, 1).shape == (8, 8, 1)
    with pytest.raises(ConfigError, match="1 or 3 channels, got 4"):
        preprocess.picture(saved(Image.fromarray(ramp()), "PNG"), 8, 4)


def test_32_bit_grey_in_memory_is_not_taken_for_16_bits() -> None:
    grey = Image.fromarray(np.full((4, 4), 200, np.int32))
    assert (preprocess.whole_picture(grey, 3) == 200).all()
    with pytest.raises(DataError, match="expected values from 0 to 255, got 51200 to 51200"):
        preprocess.whole_picture(Image.fromarray(np.full((4, 4), 51200, np.int32)), 3)
