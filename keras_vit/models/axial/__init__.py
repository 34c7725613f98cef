"""The axial models (Appendix D.6, Figure 13): configurations, and each model from attention to model class."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
