"""The paper's tables and figures: its values, our runs, and a verdict on each that nobody fills in by hand."""
