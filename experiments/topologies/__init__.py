"""Published counts, bisections, diameters and numbers of paths of fabrics, against ours."""
