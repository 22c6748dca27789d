"""The preview of a vault's windows: a sample of them, shredded in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence

from manifest_platform.shred.sample import Sampler
from manifest_platform.sources.directories import LandedDirectory
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.preview import Bounds, Sample, Sampling
from manifest_platform.sources.veeva.layout import parse_window_name, root_of
from manifest_platform.sources.veeva.shredder import VeevaOptions, Window, sample_window


def sample(options: VeevaOptions, directories: Sequence[tuple[str, LandedDirectory]], bounds: Bounds) -> Sample:
    """Shreds the beginning of each file of some windows."""
    sampler = Sampler(time.monotonic() + bounds.seconds)
    sampling = Sampling(sampler, directories, bounds)
    for _, directory in sampling.each():
        try:
            directory.check()
            sample_window(_window(directory), options, sampler)
        except (ValueError, OSError, LandingError) as error:
            sampling.failed(directory, error)
    return sampling.sample()


def _window(directory: LandedDirectory) -> Window:
    parsed = parse_window_name(directory.name)
    assert parsed is not None  # listings return windows only
    files = tuple((file.uri, file.size) for file in directory.files)
    return Window(
        item=directory.uri,
        files=files,
        output="",
        attempt="",
        feed=parsed.feed,
        stop=parsed.stop,
        place=directory.uri,
        root=root_of(directory.uri),
    )
