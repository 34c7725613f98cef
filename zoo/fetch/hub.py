"""The Hugging Face Hub by its own library: fetches files into the cache that other libraries share, and `zoo.push`."""

import contextlib
import os
import re
from pathlib import Path

from keras_vit.errors import DownloadError, UploadError
from keras_vit.files import is_offline, sha256
from keras_vit.owned import is_digest
from keras_vit.zoo.fetch import places
from keras_vit.zoo.fetch.places import is_loopback, read_hub, read_url
from keras_vit.zoo.fetch.web import describe_cause

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read at the library's import: requests are for files alone
NOT_UPLOADED = [".*", "*/.*", "keras-vit-export.json"]  # hidden files, and this package's record of its files


class NotFoundError(DownloadError):
    """The repository has no such file."""


def read_token(endpoint):
    """The user's token for the Hub, or False if it would be sent unencrypted."""
    import huggingface_hub

    url = read_url(endpoint)
    if url.scheme != "https" and not is_loopback(url):
        return False
    token = huggingface_hub.get_token() or ""
    if re.fullmatch(r"[\x21-\x7e]*", token) is None:
        raise DownloadError("HF_TOKEN contains spaces or characters outside of ASCII. No token does: set it again.")
    return token or False


def read_status(error):
    """(status of the Hub's answer or None, cause in words) of an error, also of httpx by huggingface_hub's version."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status, describe_cause(error) if status is None else f"the Hub answered {status}"


@contextlib.contextmanager
def describe_hub_errors(url):
    """Turns errors of the Hub, the network and the disk into DownloadErrors."""
    from huggingface_hub import errors

    try:
        yield
    except DownloadError:
        raise
    except errors.RemoteEntryNotFoundError:  # of a broken connection there is a LocalEntryNotFoundError
        raise NotFoundError(f"{url} is not there: the repository has no such file.") from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError):
        raise DownloadError(
            f"{url} is not there, or not public. Check the name; accept its licence on the Hub if it has one, and set "
            "HF_TOKEN."
        ) from None
    except Exception as error:
        raise DownloadError(
            f"{url} could not be fetched: {read_status(error)[1]}. Try again later, or set HF_HOME to a folder with "
            "space."
        ) from None


def look_on_disk(url):
    """What the Hub's cache knows of an address hf://...: the file's path, None, or an object for "no such file"."""
    import huggingface_hub

    repo, revision, file = read_hub(url)
    return huggingface_hub.try_to_load_from_cache(repo, file, places.hub_cache(), revision)


def find_on_disk(url: str) -> Path | None:
    """The file for an address hf://... if the Hub's cache has it; no server is asked for a newer one."""
    found = look_on_disk(url)
    return Path(found) if isinstance(found, str) else None


def fetch_from_hub(url: str, most: int) -> Path:
    """Fetches a file of the Hub at the first call; returns its path in the library's cache.

    Raises:
        NotFoundError: when the repository has no such file.
        DownloadError: when it cannot be fetched, or has more than `most` bytes; then no wrong file is left.
    """
    import huggingface_hub

    (repo, revision, file), endpoint = read_hub(url), places.hub()
    if path := find_on_disk(url):
        return path
    if is_offline():
        raise DownloadError(
            f"{url} is not in the Hub's cache, {places.hub_cache()}, and KERAS_VIT_OFFLINE forbids fetching it. "
            f"Unset KERAS_VIT_OFFLINE, or fill the cache by `hf download {repo} {file}`."
        )
    token, wait = read_token(endpoint), places.timeout()
    with describe_hub_errors(url):
        address = huggingface_hub.hf_hub_url(repo, file, revision=revision, endpoint=endpoint)
        options = {"cache_dir": places.hub_cache(), "token": token, "endpoint": endpoint, "etag_timeout": wait}
        try:
            stated = huggingface_hub.get_hf_file_metadata(address, token=token, timeout=wait, endpoint=endpoint)
        except huggingface_hub.errors.EntryNotFoundError:
            huggingface_hub.hf_hub_download(repo, file, revision=revision, **options)  # notes this in the cache
            raise
        if stated.size is None or stated.size > most:
            size = "an unknown number of" if stated.size is None else f"{stated.size:,}"
            raise DownloadError(f"{url} has {size} bytes; at most {most:,} are fetched.")
        path = Path(huggingface_hub.hf_hub_download(repo, file, revision=revision, **options))
        if is_digest(stated.etag) and sha256(path) != stated.etag:  # a large file's ETag is its SHA-256
            for name in (path.resolve(), path):
                name.unlink(missing_ok=True)
            raise DownloadError(
                f"{url}: the file received does not have the sha256 that the Hub states. Try again later."
            )
    return path


def require_licence(folder):
    """Refuses a folder if its card does not state a licence to pass the weights on."""
    import huggingface_hub

    card = folder / "README.md"
    if not card.is_file():
        raise UploadError(f"{folder} has no README.md. Expected a folder that zoo.save(layout='hub') wrote.")
    try:
        licence = huggingface_hub.ModelCard.load(card).data.get("license")
    except Exception as error:  # of YAML, or of the Hub's own checks
        raise UploadError(f"{card} has no valid YAML between its lines ---: {error}.") from None
    if not licence:
        raise UploadError(
            f"{card} states no licence. Without one nobody may use the weights. Save the folder with "
            "metadata={'licence': ...}: the licence of the weights that you began with, or your own."
        )
    if licence == "other" and not any(folder.glob("LICENSE*")):
        raise UploadError(
            f"{card} states a licence that the Hub does not know. Read whether it lets you pass the weights on; if so, "
            f"put its text into {folder / 'LICENSE'}, which such licences ask for."
        )


def push(folder: str | os.PathLike[str], repository: str, *, private: bool = False) -> str:
    """Uploads a folder as a new repository of the Hugging Face Hub, in one commit.

    Args:
        folder: a folder from `zoo.save(layout="hub")`; hidden files are not uploaded.
        repository: "owner/name" of a new repository.
        private: whether only its owner can see it.

    Returns:
        The repository's address.

    Raises:
        UploadError: without a token or a licence, for a name in use, or when the upload fails; no repository is left.

    >>> keras_vit.zoo.push("folder", "owner/name")  # doctest: +SKIP
    'https://huggingface.co/owner/name'
    """
    import huggingface_hub

    folder, endpoint = Path(folder), places.hub()
    if re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII) is None:
        raise UploadError(f"A repository is called owner/name. Received: {repository!r}.")
    require_licence(folder)
    if is_offline():
        raise UploadError("KERAS_VIT_OFFLINE forbids the network. Unset KERAS_VIT_OFFLINE to upload.")
    token = read_token(endpoint)
    if token is False and huggingface_hub.get_token():
        raise UploadError("HF_ENDPOINT must be an https address: a token is not sent unencrypted.")
    if not token:
        raise UploadError("The Hub needs a token that may write. Set HF_TOKEN, or run `hf auth login`.")
    api = huggingface_hub.HfApi(endpoint, token=token)
    try:
        api.create_repo(repository, private=private)
    except Exception as error:
        status, cause = read_status(error)
        if status == 409:
            raise UploadError(f"{repository} exists already, and is not changed. Choose another name.") from None
        cause += ", so the token is not one that may write there" if status in (401, 403) else ""
        raise UploadError(f"{repository} could not be made: {cause}. Nothing was uploaded.") from None
    try:
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            ignore_patterns=NOT_UPLOADED,
            commit_message="Model saved by Keras ViT",
        )
    except BaseException as error:
        left = "was removed; try again"
        try:
            api.delete_repo(repository, missing_ok=True)
        except Exception:
            left = "could not be removed: delete it on the Hub by hand, and try again"
        if not isinstance(error, Exception):
            raise
        raise UploadError(f"{folder} could not be uploaded: {read_status(error)[1]}. {repository} {left}.") from None
    return f"{endpoint}/{repository}"
