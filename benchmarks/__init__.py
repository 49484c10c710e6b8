"""What the sim and the API cost, always as a ratio to a yardstick that was measured in the same run."""
