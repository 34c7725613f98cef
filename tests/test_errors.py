"""Messages of errors: what a file or a server calls things is shown, and acts on nothing."""

import pickle

import pytest
from attacks import acts

from keras_vit import errors
from keras_vit.text import printable

HOSTILE = "a\x1b]0;title\x07\r\nkeras-vit: all fine\x85\u2028\u202eb\u2066\ud800\x00c"
ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.KerasVitError)]


@pytest.mark.parametrize("kind", ERRORS)
def test_messages_act_on_nothing(kind):
    error = kind(f"x.npz holds {HOSTILE}.")
    assert acts(HOSTILE)
    assert not acts(str(error))
    assert str(error).startswith(r"x.npz holds a\x1b]0;title\x07\r\nkeras-vit: all fine")
    assert str(error).endswith("c.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_long_messages_keep_their_ends():
    message = str(errors.CheckpointError(f"x.npz holds {'a' * 10**6}. Fetch it again."))
    assert len(message) < 2000
    assert message.startswith("x.npz holds aaa")
    assert message.endswith("aaa. Fetch it again.")


@pytest.mark.parametrize("text", ["tabby, tabby cat", "ü 猫 🐈‍⬛ عربى", "a\\nb", " "])
def test_text_of_people_stays(text):
    assert printable(text) == text
