"""Which ranks are not like their peers, how sure that is, and what it costs."""
