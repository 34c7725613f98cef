from .bundling import bundle as bundle
from .conversion import convert as convert
from .report import Report as Report
from .verification import verify as verify
