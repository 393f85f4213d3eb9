"""Other libraries doing the same job as Boyd, but keeping nothing but its result."""
