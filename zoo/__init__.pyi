from .class_vectors import zero_shot as zero_shot
from .fetch.hub import push as push
from .loading import load as load
from .names.listed_models import ListedModel as ListedModel
from .names.listed_models import info as info
from .names.listed_models import list as list
from .saving import save as save
