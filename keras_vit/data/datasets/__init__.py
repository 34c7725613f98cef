"""Which datasets there are: the paper's as rows, folders of photographs, arrays of packages."""
