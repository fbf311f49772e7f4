"""Tables checked against the manifest, findings, and every rendering of them."""
