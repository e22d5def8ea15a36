"""What every single failure costs, by one solve per class and by one per component."""
