"""Other machines, reached by SSH: which they are, how their keys are verified, and how far their clocks are off."""
