"""Everything a real federation needs on disk: an app, certificates, keys, start scripts; what checks and renews them."""
