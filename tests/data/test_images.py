from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fedgwc.core.errors import InputError
from fedgwc.data.sources import images
from fedgwc.data.sources.images import ImageCache, decoded
from fedgwc.data.sources.pixel_store import PixelStore

Image = pytest.importorskip("PIL.Image", reason="photographs need the extra `images`")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for i in range(6):
        Image.new("RGB", (40, 30), (40 * i, 0, 0)).save(tmp_path / "images" / f"i{i}.png")
    return tmp_path


def cache_of(folder: Path, size: int = 8) -> ImageCache:
    return ImageCache(folder / "images", [f"i{i}" for i in range(6)], size, folder / "cache", workers=2)


def test_it_reads_like_a_tensor(folder: Path) -> None:
    cache = cache_of(folder)
    assert (cache.shape, cache.dtype, cache.ndim, len(cache)) == ((6, 3, 8, 8), torch.uint8, 4, 6)
    assert cache[0].shape == (3, 8, 8)
    batch = cache.to(torch.device("cpu"))[torch.tensor([[5, 1], [1, 0]])]
    assert batch.shape == (2, 2, 3, 8, 8)
    assert batch[..., 0, 0, 0].tolist() == [[200, 40], [40, 0]]
    assert batch[..., 1, :, :].sum() == 0
    with pytest.raises(IndexError, match=r"0\.\.5"):
        cache[torch.tensor([6])]


def test_it_survives_a_restart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache_of(folder)[torch.arange(4)]
    monkeypatch.setattr(images, "decoded", lambda path, size: pytest.fail(f"decoded {path} again"))
    assert torch.equal(cache_of(folder)[torch.arange(4)], before)
    for file in (folder / "images").iterdir():
        file.unlink()
    cache = cache_of(folder)
    assert cache.absent(range(6)) == ["i4", "i5"]
    with pytest.raises(InputError, match=r"no image i4\.jpg"):
        cache[4]


def test_damaged_pixels_are_decoded_again(folder: Path) -> None:
    before = cache_of(folder)[torch.arange(6)]
    (pixels,) = (folder / "cache").glob("*.pixels")
    raw = bytearray(pixels.read_bytes())
    raw[200:400] = bytes(200)  # as a power cut may leave it: marked, but not written
    raw[-1] ^= 255
    pixels.write_bytes(raw)
    assert torch.equal(cache_of(folder)[torch.arange(6)], before)


def test_a_kill_never_yields_a_wrong_image(folder: Path) -> None:
    """A process is killed while it decodes for ever; every image it left is right."""
    code = (
        "import sys, torch; from pathlib import Path; from fedgwc.data.sources.images import ImageCache, decoded\n"
        "f = Path(sys.argv[1]); c = ImageCache(f / 'images', [f'i{i}' for i in range(6)], 64, f / 'cache', 2)\n"
        "print('go', flush=True)\n"
        "while True:\n"
        "    for r in range(6): c._store.write(r, decoded(f / 'images' / f'i{r}.png', 64))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    expected = np.stack([decoded(folder / "images" / f"i{i}.png", 64) for i in range(6)])
    np.testing.assert_array_equal(cache_of(folder, 64)[torch.arange(6)].numpy(), expected)


def test_prefetch_works_in_the_background_and_fill_reports(folder: Path) -> None:
    cache = cache_of(folder)
    for future in cache.prefetch(torch.tensor([0, 1, 1])):
        future.result()
    assert cache.prefetch([0, 1]) == []
    seen: list[tuple[int, int]] = []
    cache.fill(np.arange(6), lambda done, total: seen.append((done, total)))
    assert seen == [(6, 6)]
    assert not cache.prefetch(np.arange(6))


def test_a_fork_decodes_too(folder: Path) -> None:
    """Threads do not survive a fork, and a worker process must not wait for those of its parent."""
    code = (
        "import os, signal, sys; from pathlib import Path; from fedgwc.data.sources.images import ImageCache\n"
        "f = Path(sys.argv[1]); c = ImageCache(f / 'images', [f'i{i}' for i in range(6)], 8, f / 'cache', 2)\n"
        "c[[0, 1]]\n"
        "if (child := os.fork()) == 0:\n"
        "    signal.alarm(20); os._exit(int(c[2][0, 0, 0]))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(c[3][0, 0, 0]))\n"
    )
    process = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["80", "120"]


def test_what_another_process_has_decoded_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, other = cache_of(folder), cache_of(folder)
    expected = other[torch.arange(6)]
    monkeypatch.setattr(images, "decoded", lambda path, size: pytest.fail(f"decoded {path} again"))
    assert torch.equal(before[torch.arange(6)], expected)


def test_other_sizes_and_ids_do_not_meet(folder: Path) -> None:
    assert cache_of(folder)[1].shape == (3, 8, 8)
    assert cache_of(folder, 4)[1].shape == (3, 4, 4)
    other = ImageCache(folder / "images", ["i3"], 8, folder / "cache")
    assert other[0][0, 0, 0] == 120


def test_nothing_decoded_takes_no_disk(tmp_path: Path) -> None:
    PixelStore(tmp_path / "big", 100_000, (3, 224, 224))  # 15 GB if it were written
    assert sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir()) < 2**20


def test_the_centre_is_cut_out(tmp_path: Path) -> None:
    image = Image.new("RGB", (90, 30), (255, 0, 0))
    image.paste((0, 0, 255), (30, 0, 60, 30))
    image.save(tmp_path / "a.png")
    pixels = decoded(tmp_path / "a.png", 10)
    assert pixels.shape == (3, 10, 10)
    assert pixels[2, :, 2:8].min() == 255
    assert pixels[0, :, 2:8].max() == 0


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_every_kind_of_picture_becomes_three_channels(tmp_path: Path, mode: str) -> None:
    Image.new(mode, (12, 20)).save(path := tmp_path / ("a.jpg" if mode == "CMYK" else "a.png"))
    assert decoded(path, 8).shape == (3, 8, 8)


@pytest.mark.parametrize("raw", [b"", b"no picture", None])
def test_a_broken_picture_is_named(folder: Path, raw: bytes | None) -> None:
    path = folder / "images" / "i2.png"
    path.write_bytes(path.read_bytes()[:60] if raw is None else raw)
    cache = cache_of(folder)
    with pytest.raises(InputError, match=r"cannot decode .*i2\.png"):
        cache[2]
    assert cache[3][0, 0, 0] == 120
    Image.new("RGB", (9, 9), (7, 7, 7)).save(path)
    assert cache[2][0, 0, 0] == 7  # a failure is not remembered


def test_without_pillow_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match=r"its extra `images`"):
        cache_of(folder)[0]
