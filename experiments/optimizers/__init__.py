"""How near the optimisers come to what can be proved, and what they cost."""
