"""Tasks of other formats: rows of SWE-bench data sets, and Harbor's task directories."""
