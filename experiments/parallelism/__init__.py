"""What is quoted of data, tensor and pipeline parallelism, against the steps of the product."""
