"""Looking inside a Vision Transformer (section 4.5, Appendix D)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
