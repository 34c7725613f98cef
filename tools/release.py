"""The files of a release: wheel, archive and their checksums, the same bytes whoever makes them; and an SBOM.

python tools/release.py v0.1.0 dist --sbom
"""

import argparse
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
SBOM = "sbom.cdx.json"  # CycloneDX: what the wheel needs, in the versions of the day


def run(*command, **options):
    return subprocess.run(command, check=True, **options)


def unpack(revision, folder):
    """Writes the files of a revision, with its time, which is returned in seconds."""
    git = ("git", "-C", ROOT)
    time = run(*git, "log", "-1", "--format=%ct", revision, capture_output=True, text=True).stdout.strip()
    content = run(*git, "archive", revision, capture_output=True).stdout
    run("tar", "-x", "-C", folder, input=content)
    return int(time)


def repack(path, time):
    """Writes an archive .tar.gz again, of files that setuptools made with the time of day."""
    with tarfile.open(path) as archive:
        members = sorted((m for m in archive.getmembers() if m.isfile()), key=lambda member: member.name)
        contents = [(member.name, member.mode, archive.extractfile(member).read()) for member in members]
    with gzip.GzipFile(path, "wb", mtime=time) as whole, tarfile.open(fileobj=whole, mode="w") as archive:
        for name, mode, content in contents:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), time, mode
            archive.addfile(entry, io.BytesIO(content))


def write_sbom(wheel, path):
    """Installs the wheel into a new environment, and writes what that holds. Needs cyclonedx-bom."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin/python")
        run(python, "-m", "pip", "install", "--quiet", wheel)
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools")
        options = ("--output-reproducible", "-o", path)
        run(sys.executable, "-m", "cyclonedx_py", "environment", *options, python)


def make(revision, out, sbom):
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        time = unpack(revision, folder)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time)}
        run(sys.executable, "-m", "build", "--outdir", out, folder, env=environment, stdout=subprocess.DEVNULL)
    (wheel,), (archive,) = out.glob("*.whl"), out.glob("*.tar.gz")
    repack(archive, time)
    files = [archive, wheel]
    if sbom:
        write_sbom(wheel, out / SBOM)
        files.append(out / SBOM)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("revision", help="a tag or a commit")
    parser.add_argument("out", type=Path, help="a new folder")
    parser.add_argument("--sbom", action="store_true", help="also write what the wheel needs; takes a minute")
    arguments = parser.parse_args()
    make(arguments.revision, arguments.out, arguments.sbom)
