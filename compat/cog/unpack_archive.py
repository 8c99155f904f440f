# SPDX-License-Identifier: Apache-2.0
"""Archives of engines and models, as the environment and configurations name them by URL."""

import pathlib
import shutil
import sys
import tarfile
import urllib.request


def unpack_archive(what, url, folder):
    """Unpacks what lies at `url` to `folder`, unless a config.json is there; ends the program where that fails."""
    if (folder / "config.json").exists():
        return
    print(f"Downloading model files from {url}...", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, tarfile.open(fileobj=answer, mode="r|*") as archive:
            for member in archive:
                unpack_member(archive, member, folder)
    except (OSError, ValueError, tarfile.TarError) as error:
        sys.exit(f"{what}: {url} cannot be unpacked to {folder}: {error}")


def unpack_member(archive, member, folder):
    """Files and folders below `folder` alone. Python 3.11.2, Debian 12's, has no filters of tarfile that would see to it."""
    name = pathlib.PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"{member.name} is not below the folder")
    if member.isdir():
        (folder / name).mkdir(parents=True, exist_ok=True)
        return
    if not member.isfile():
        raise ValueError(f"{member.name} is neither a file nor a folder")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with archive.extractfile(member) as content, open(folder / name, "wb") as out:
        shutil.copyfileobj(content, out)
