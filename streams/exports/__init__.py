"""What leaves the log as evidence: forms that a stranger can check with nothing but what they were given."""
