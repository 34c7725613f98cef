from .bundling import bundle
from .conversion import convert
from .report import Report
from .verification import verify

__all__ = ["Report", "bundle", "convert", "verify"]
