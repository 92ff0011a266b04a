"""Groups by evidence: seen in updates, tested against one cloud, decided on validation samples."""
