"""The datasets: the paper's as rows, folders of photographs, arrays of packages."""
