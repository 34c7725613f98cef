"""Uploads a folder to the Hugging Face Hub: `keras_vit.zoo.push`."""

import os
import re
from pathlib import Path

from keras_vit.errors import UploadError
from keras_vit.files import is_offline
from keras_vit.zoo.fetch import places
from keras_vit.zoo.fetch.hub import read_token
from keras_vit.zoo.fetch.web import describe_cause

LEFT = [".*", "*/.*", "keras-vit-export.json"]  # not uploaded: hidden files, and this package's record of its files


def require_licence(folder):
    """Refuses a folder if its card does not state a licence to pass the weights on."""
    import huggingface_hub

    card = folder / "README.md"
    if not card.is_file():
        raise UploadError(f"{folder} has no README.md. Expected a folder that zoo.save(layout='hub') wrote.")
    licence = huggingface_hub.ModelCard.load(card).data.get("license")
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
    from huggingface_hub.errors import HfHubHTTPError

    folder, endpoint = Path(folder), places.hub()
    if re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII) is None:
        raise UploadError(f"A repository is called owner/name. Received: {repository!r}.")
    require_licence(folder)
    if is_offline():
        raise UploadError("KERAS_VIT_OFFLINE forbids the network. Unset KERAS_VIT_OFFLINE to upload.")
    token = read_token(endpoint)
    if not token:
        raise UploadError("The Hub needs a token that may write. Set HF_TOKEN, or run `hf auth login`.")
    api = huggingface_hub.HfApi(endpoint, token=token)
    try:
        api.create_repo(repository, private=private)
    except Exception as error:  # also of httpx, by the version of huggingface_hub
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status == 409:
            raise UploadError(f"{repository} exists already, and is not changed. Choose another name.") from None
        cause = describe_cause(error) if status is None else f"the Hub answered {status}"
        cause += ", so the token is not one that may write there" if status in (401, 403) else ""
        raise UploadError(f"{repository} could not be made: {cause}. Nothing was uploaded.") from None
    try:
        api.upload_folder(
            repo_id=repository, folder_path=folder, ignore_patterns=LEFT, commit_message="Model saved by Keras ViT"
        )
    except BaseException as error:
        api.delete_repo(repository, missing_ok=True)
        if not isinstance(error, Exception):
            raise
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
        cause = describe_cause(error) if status is None else f"the Hub answered {status}"
        raise UploadError(f"{folder} could not be uploaded: {cause}. {repository} was removed; try again.") from None
    return f"{endpoint}/{repository}"
