"""Where the wall-clock time of each GPU went: every nanosecond in one class."""
