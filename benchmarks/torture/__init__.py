"""`make torture`: what happens to runs, files and models when everything that can go wrong does. Results: docs/reliability.md."""
