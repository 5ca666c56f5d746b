//! The proof: what the model claims, where the claim is from, and what it does.
