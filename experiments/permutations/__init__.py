"""What hashing costs flows that would all fit, and what each cure gives back."""
