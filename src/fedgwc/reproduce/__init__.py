"""The paper's tables and figures: its values, our runs, and computed verdicts."""
