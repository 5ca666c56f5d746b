"""Other people's QUIC implementations: what they are, how they are installed, and how one end of them is run."""
