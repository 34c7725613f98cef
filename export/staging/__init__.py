"""Where artefacts are written: in a hidden folder first, then in place of an earlier export."""
