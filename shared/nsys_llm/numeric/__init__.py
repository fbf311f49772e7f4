"""Integer intervals, exact histograms, grouping and top rows: numpy only."""
