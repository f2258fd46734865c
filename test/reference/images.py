"""Small image files of every kind, and what torchvision reads in them.

Run it as python3 -P: a numpy.py lies beside it. It writes the files, which are fuzz seeds as well, and
images.safetensors: their pixels, uint8 [channels, height, width]; those of palettes and 16 bits, which torchvision
leaves as they are, are given. grid.* is torchvision.utils.make_grid's.
"""
import pathlib
import struct
import zlib

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.utils import make_grid

here = pathlib.Path(__file__).parent
seeds = here.parent / "fuzz" / "seeds"
rng = np.random.default_rng(1)
figures = {}


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(name, width, height, bits, color, data, interlaced=0, more=b""):
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, interlaced)
    (seeds / "png" / name).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more +
                                chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def rows(pixels):
    return b"".join(b"\0" + row.tobytes() for row in pixels)


def expect(name, pixels):
    figures[name] = torch.tensor(np.ascontiguousarray(np.moveaxis(pixels, -1, 0) if pixels.ndim == 3 else pixels[None]))


# ---- PNG -------------------------------------------------------------------------------------------------------------

for channels, (name, color) in enumerate((("gray", 0), ("gray_alpha", 4), ("rgb", 2), ("rgba", 6)), 1):
    pixels = rng.integers(0, 256, (5, 7, channels), dtype=np.uint8)
    png(name + ".png", 7, 5, 8, color, rows(pixels))
    expect(name + ".png", pixels)

deep = rng.integers(0, 65536, (3, 4, 3), dtype=np.uint16)
png("deep.png", 4, 3, 16, 2, rows(deep.astype(">u2")))
expect("deep.png", np.round(deep / 257).astype(np.uint8))

bits = rng.integers(0, 2, (4, 11), dtype=np.uint8)
png("bits.png", 11, 4, 1, 0, rows(np.packbits(bits, axis=1)))
expect("bits.png", bits * 255)

colors, alphas = rng.integers(0, 256, (5, 3), dtype=np.uint8), np.array([0, 100], dtype=np.uint8)
indices = rng.integers(0, 5, (4, 6), dtype=np.uint8)
png("palette.png", 6, 4, 8, 3, rows(indices), more=chunk(b"PLTE", colors.tobytes()))
expect("palette.png", colors[indices])
png("palette_alpha.png", 6, 4, 8, 3, rows(indices),
    more=chunk(b"PLTE", colors.tobytes()) + chunk(b"tRNS", alphas.tobytes()))
alpha = np.concatenate([alphas, np.full(3, 255, np.uint8)])
expect("palette_alpha.png", np.concatenate([colors[indices], alpha[indices][..., None]], 2))

pixels = rng.integers(0, 256, (9, 10, 3), dtype=np.uint8)
passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
png("interlaced.png", 10, 9, 8, 2, b"".join(rows(pixels[y::dy, x::dx]) for y, x, dy, dx in passes), interlaced=1)
expect("interlaced.png", pixels)

# ---- JPEG ------------------------------------------------------------------------------------------------------------

y, x = np.mgrid[0:19, 0:26]
smooth = np.stack([x * 9, y * 13, 255 - x * 4 - y * 5], 2).clip(0, 255).astype(np.uint8)
Image.fromarray(smooth).save(seeds / "jpeg" / "rgb.jpg", quality=90)
Image.fromarray(smooth).save(seeds / "jpeg" / "progressive.jpg", quality=80, progressive=True)
Image.fromarray(smooth[:, :, 0]).save(seeds / "jpeg" / "gray.jpg", quality=90)
Image.fromarray(smooth).convert("CMYK").save(seeds / "jpeg" / "cmyk.jpg", quality=95)
for name in ("rgb.jpg", "progressive.jpg", "gray.jpg"):
    figures[name] = decode_image(read_file(str(seeds / "jpeg" / name)))
figures["cmyk.jpg"] = torch.tensor(smooth).permute(2, 0, 1).contiguous()  # to some units

figures["rgb.png.gray"] = decode_image(read_file(str(seeds / "png" / "rgb.png")), ImageReadMode.GRAY)
figures["rgb.jpg.gray"] = decode_image(read_file(str(seeds / "jpeg" / "rgb.jpg")), ImageReadMode.GRAY)

# ---- grids -----------------------------------------------------------------------------------------------------------

torch.manual_seed(1)
figures["grid.x"] = torch.randn(5, 3, 4, 6)
figures["grid.gray"] = torch.randn(3, 1, 2, 2)
figures["grid.plain"] = make_grid(figures["grid.x"], nrow=3, pad_value=0.25)
figures["grid.normal"] = make_grid(figures["grid.x"], nrow=2, padding=1, normalize=True)
figures["grid.each"] = make_grid(figures["grid.x"], padding=0, normalize=True, scale_each=True)
figures["grid.range"] = make_grid(figures["grid.x"], normalize=True, value_range=(-1, 0.5))
figures["grid.of_gray"] = make_grid(figures["grid.gray"])
save_file({name: x.contiguous() for name, x in figures.items()}, here / "images.safetensors")
for name in sorted(figures):
    print(name, tuple(figures[name].shape))
