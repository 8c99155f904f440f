# SPDX-License-Identifier: Apache-2.0
"""Archives of engines and models, as the environment and configurations name them by URL."""

import sys
import tarfile
import urllib.request


def unpack_archive(what, url, folder):
    """Unpacks what lies at `url` to `folder`, unless a config.json is there; ends the program where that fails."""
    if (folder / "config.json").exists():
        return
    if not hasattr(tarfile, "data_filter"):
        sys.exit(f"{what}: this Python unpacks archives without a look at their paths; unpack {url} to {folder} yourself")
    print(f"Downloading model files from {url}...", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, tarfile.open(fileobj=answer, mode="r|*") as archive:
            archive.extractall(folder, filter="data")
    except (OSError, ValueError, tarfile.TarError) as error:
        sys.exit(f"{what}: {url} cannot be unpacked to {folder}: {error}")
