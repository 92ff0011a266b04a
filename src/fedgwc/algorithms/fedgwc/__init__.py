"""FedGWC as published."""
