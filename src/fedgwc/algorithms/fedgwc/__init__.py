"""FedGWC as its paper has it."""
